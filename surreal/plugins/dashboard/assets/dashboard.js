// What runs in the browser. Each function is a callback of wiring.py.
(() => {
    const STALE_MS = 15000;
    const remembered = "surreal-theme";
    let newest = { text: "", at: Date.now() };

    const currentTheme = () =>
        document.documentElement.dataset.theme ||
        localStorage.getItem(remembered) ||
        (window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

    const setTheme = (theme) => {
        document.documentElement.dataset.theme = theme;
        return theme;
    };

    // Before anything is drawn, so that the other theme does not flash.
    setTheme(currentTheme());

    // Build an element from a Dash component of plain HTML. Text stays text.
    const build = (node) => {
        if (typeof node !== "object" || node === null) return document.createTextNode(node ?? "");
        if (Array.isArray(node)) {
            const parts = document.createDocumentFragment();
            parts.append(...node.map(build));
            return parts;
        }
        const { children, className, title, colSpan, style } = node.props;
        const element = document.createElement(node.type);
        if (className) element.className = className;
        if (title) element.title = title;
        if (colSpan) element.colSpan = colSpan;
        Object.assign(element.style, style);
        element.append(build(children));
        return element;
    };

    const functions = {
        // Draw the data of X-tree into X; a pane keeps its scroll position.
        draw(tree) {
            const from = window.dash_clientside.callback_context.triggered_id;
            if (!from || !tree) return;
            const place = document.getElementById(from.replace("-tree", ""));
            const scrolled = [...place.querySelectorAll(".log, .scroll-x")].map((pane) => [pane.scrollLeft, pane.scrollTop]);
            place.replaceChildren(build(tree));
            place.querySelectorAll(".log, .scroll-x").forEach((pane, i) => scrolled[i] && pane.scrollTo(...scrolled[i]));
        },

        // Ask for updates unless the page is hidden, and mark the page when none has come for a while.
        tick(count) {
            if (document.hidden) {
                newest.at = Date.now();
                return window.dash_clientside.no_update;
            }
            const text = document.getElementById("updated")?.textContent ?? "";
            if (text !== newest.text) newest = { text, at: Date.now() };
            document.body.classList.toggle("is-stale", Date.now() - newest.at > STALE_MS);
            return count ?? 0;
        },

        theme(clicks) {
            if (!clicks) {
                // On a small screen, the list of runs starts folded.
                if (window.innerWidth <= 900) document.querySelector(".sidebar").open = false;
                return setTheme(currentTheme());
            }
            const theme = currentTheme() === "dark" ? "light" : "dark";
            localStorage.setItem(remembered, theme);
            return setTheme(theme);
        },

        showPane(tab) {
            return `show-${tab}`;
        },

        // Whether to hide the question.
        ask() {
            return window.dash_clientside.callback_context.triggered_id !== "stop";
        },

        async stop(clicks, run, token) {
            if (!clicks || !run) return window.dash_clientside.no_update;
            try {
                const headers = token ? { "X-Surreal-Token": token } : {};
                const reply = await fetch(`/stop/${encodeURIComponent(run)}`, { method: "POST", headers });
                return (await reply.json()).answer;
            } catch (error) {
                return `The dashboard does not answer: ${error.message}`;
            }
        },
    };
    window.dash_clientside = Object.assign({}, window.dash_clientside, { surreal: functions });
})();
