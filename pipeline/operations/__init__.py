"""Operations, their jobs and plans, and the sessions that run them."""
