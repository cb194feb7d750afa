"""`surreal dashboard`: a web page, made with Dash, of the runs in folders and in a Redis.

    commands.py  the command: listens on a socket until Ctrl-C
    app.py       the page's server, its routes, and the check of each request
    wiring.py    Dash's callbacks: the inputs of each part of the page
    page/        the parts of the page: pure functions from data to Dash components
    sources/     the data: runs, their histories and their state in Redis; read no more often than needed

Everything that a page shows comes through `sources`, however many pages are open. The only thing that the dashboard
writes is the request to stop a run. Dash escapes all text; `page/curves.py` escapes what Plotly would read as markup.
"""
