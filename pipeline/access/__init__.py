"""Access: who is within reach of facilities, and where further ones reach most people."""
