"""The offline HTML report of a study."""
