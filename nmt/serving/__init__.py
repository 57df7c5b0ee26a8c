"""Translating over HTTP: what nmt-serve runs.

asking.py      what clients send, in each of the forms that they know, becomes lines for a model
waiting.py     lines of all requests wait for a process, and leave in windows
workers.py     the processes that translate
dispatching.py windows go to processes, translations back to requests
answering.py   translations in the form of each client
app.py         the routes; body.py reads what a client sends, within limits
server.py      the listening socket, and how the server stops
"""
