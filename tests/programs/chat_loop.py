"""A conversation: each message continues the session."""

import treadle

agent = treadle.Agent(name="friend", model="openai/gpt-5", instructions="You are friendly.")
with treadle.Engine("sqlite:///chat.db") as engine:
    session = None
    for line in ("My name is Ada.", "What is my name?"):
        result = engine.run_sync(agent, line, session=session)
        session = result.session_id
        print("agent:", result.text)
    for message in engine.do_sync(engine.messages(session)):
        print(type(message).__name__, message.text)
