"""Checks that implementers of a port can run on their own implementation.

Each module contains the checks of one port: `claims`, `concurrency`, `journal`, `children` and `accounts`, `wakes`,
`runs`, `model`, `dispatcher`; and of the other data of a store: `memories`, `memory_events`, `owners`, `access`,
`automation`, `deletion`, `titles`, `labels`. A check is an async function that takes a harness, a few lines that
open the implementation under test. Its docstring states the contract, and it raises AssertionError if the
implementation breaks it. With pytest:

    @pytest.mark.parametrize("check", journal.CHECKS, ids=lambda check: check.__name__)
    def test_my_journal(check: StoreCheck) -> None:
        asyncio.run(check(MyHarness()))

Every check needs a harness and a store of its own."""
