"""The report of a study: one HTML file that needs no network, no server and no other file.

A study enters, and a page leaves. `data` collects what the page shows, `page` puts it into the template in `assets`,
where the style sheet and the scripts are too. Other rooms may import `page`; most callers use `Study.to_html`.
"""
