"""A client of `treadle serve`.

treadle serve                                        # prints an address and a token
python examples/client.py http://127.0.0.1:8420 trd_…
"""

import sys

import treadle


def main(url: str, token: str, agent: str = "default") -> None:
    with treadle.Client(url, token=token) as client:
        result = client.run(agent, "Say hello.")
        print(result.text)
        for event in client.stream(agent, "And once more.", session=result.session_id):
            if event.type == "llm_response":  # a whole reply; events of the type `token` show it as it is written
                print("".join(part.get("text", "") for part in event.to_dict()["data"]["parts"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
