"""The matchmaker: the small public service where hosts and volunteers find each other.

It introduces people and then gets out of the way: it is never in the training path, and a running
job does not notice when it is gone.

    serve   the process: a port, signals, an end within a second
    app     HTTP and WebSocket routes          openapi     their description
    desk    publishing and registering: who may, and what is remembered (store)
    loop    the room: who is here, whom the planner matches, who is told what
"""
