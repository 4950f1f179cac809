"""Continue a conversation under a name of my own."""

import treadle

agent = treadle.Agent(name="chat", model="openai/gpt-5")
with treadle.Engine("sqlite:///chat.db") as engine:
    engine.run_sync(agent, "My name is Ada.", session="customer-42")
    engine.run_sync(agent, "What is my name?", session="customer-42")
    for message in engine.do_sync(engine.messages("customer-42")):
        print(f"{message.role}: {message.text}")
