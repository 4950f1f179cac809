"""What an implementation of a port must do, as checks that anyone can run on their own.

Each module holds the checks of one port: `claiming`, `places`, `journal`, `families` and `accounts`, `wakes`,
`runs`, `model`, `dispatcher`; and of what is kept beside runs `memories`, `remembering`, `owners`, `access`,
`automation`, `deleting`. A check is an async function that takes a harness, a few lines in which an implementer
says how their implementation is opened; its docstring states the contract, and it raises AssertionError where that
is broken. With
pytest:

    @pytest.mark.parametrize("check", journal.CHECKS, ids=lambda check: check.__name__)
    def test_my_journal(check: StoreCheck) -> None:
        asyncio.run(check(MyHarness()))

Every check wants a harness, and a store, of its own."""
