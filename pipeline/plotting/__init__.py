"""Drawing of results with matplotlib."""
