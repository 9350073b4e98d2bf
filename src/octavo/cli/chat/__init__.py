"""`octavo chat`: the conversation, its slash commands, its line reader, and the loop."""
