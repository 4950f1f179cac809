"""Operations: everything that a caller can ask of Treadle, each defined once. Import the module of an entity."""
