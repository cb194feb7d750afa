"""`surreal dashboard`: all runs of some folders and of a Redis on a web page, made with Dash.

    serving.py   the command: a server on a socket, until Ctrl-C
    app.py       the page's server: what it answers, and to whom (`guard.py`)
    wiring.py    which part of the page follows from which
    page/        the parts themselves: pure functions from what is known to what is shown
    sources/     what is known: runs, their histories, what Redis says; read no more often than needed

Everything that a page shows comes through `sources`, however many pages are open. Nothing here writes, but for the wish
to stop a run. Dash escapes all text; what Plotly would read as markup is escaped in `page/figures.py`.
"""
