"""Operations performed by another process: the client side of `surfaces/http`."""
