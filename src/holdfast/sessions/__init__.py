"""Sessions: conversations that outlive the connection, and the server; and their transactions."""
