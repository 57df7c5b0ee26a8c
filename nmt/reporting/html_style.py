"""The style sheet of the HTML report: light and dark, wide and narrow."""

from __future__ import annotations

_CURVES = "".join(
    f".line.k{number} {{ stroke: var(--k{number % 6}) }} .dot.k{number} {{ fill: var(--k{number % 6}) }}\n"
    f"i.k{number} {{ background: var(--k{number % 6}) }}\n"
    for number in range(12)
)

STYLE = f"""
:root {{ --paper: #fbfbfa; --card: #fff; --ink: #1d2127; --faint: #626a75; --rule: #e3e5e8;
  --k0: #2563b8; --k1: #d1661c; --k2: #2f8f57; --k3: #8a4fc0; --k4: #b3365b; --k5: #7a6a12; color-scheme: light dark }}
@media (prefers-color-scheme: dark) {{
  :root {{ --paper: #14171b; --card: #1c2026; --ink: #e4e7eb; --faint: #9aa3af; --rule: #31373f;
    --k0: #74a9ee; --k1: #f0a066; --k2: #74c797; --k3: #c19bea; --k4: #ec8aa6; --k5: #d3c05a }} }}
* {{ box-sizing: border-box }}
body {{ margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif }}
main {{ max-width: 1180px; margin: 0 auto; padding: 1rem }}
h1 {{ margin: .5rem 0 0; font-size: 1.6rem; overflow-wrap: anywhere }}
h2 {{ margin: 2rem 0 .6rem; font-size: 1.15rem; border-bottom: 1px solid var(--rule); padding-bottom: .2rem }}
h3 {{ margin: 1.2rem 0 .4rem; font-size: 1rem }}
p {{ margin: .3rem 0 .7rem }}
header p {{ color: var(--faint) }}
header p span {{ border: 1px solid var(--rule); border-radius: 9px; padding: .05rem .5rem; font-size: .85rem }}
header p .done {{ color: var(--k2); border-color: var(--k2) }}
header p .failed {{ color: var(--k4); border-color: var(--k4) }}
code {{ font: inherit; white-space: nowrap }}
header .why {{ color: var(--ink); overflow-wrap: anywhere }}
.cards {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: .6rem }}
.cards div, figure, .texts, pre {{ background: var(--card); border: 1px solid var(--rule); border-radius: 8px }}
.cards div, figure {{ padding: .6rem .8rem }}
.cards b {{ display: block; font-size: 1.15rem; font-variant-numeric: tabular-nums }}
.cards span {{ color: var(--faint); font-size: .82rem; line-height: 1.25; display: block }}
.charts {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); gap: .8rem }}
figure {{ margin: 0 }}
figcaption {{ font-weight: 600 }}
.legend {{ display: flex; flex-wrap: wrap; gap: 0 1rem; font-size: .82rem; color: var(--faint) }}
.legend i {{ display: inline-block; width: .8em; height: .8em; border-radius: 3px; margin-right: .35em }}
.legend b {{ color: var(--ink); font-variant-numeric: tabular-nums }}
svg {{ width: 100%; height: auto; display: block }}
svg text {{ font-size: 13px; fill: var(--faint) }}
svg .rule {{ stroke: var(--rule); stroke-width: 1 }}
svg .mark {{ stroke: var(--k4); stroke-width: 2; stroke-dasharray: 4 3; opacity: .8 }}
svg .line {{ fill: none; stroke-width: 1.8; stroke-linejoin: round }}
table {{ border-collapse: collapse; font-size: .92rem }}
th, td {{ text-align: left; vertical-align: top; padding: .22rem .9rem .22rem 0 }}
th {{ font-weight: 500; color: var(--faint) }}
.wide {{ overflow-x: auto }}
.grid th {{ white-space: nowrap }}
.grid td {{ font-variant-numeric: tabular-nums; border-top: 1px solid var(--rule) }}
.pairs td {{ overflow-wrap: anywhere }}
.texts {{ width: 100%; margin-bottom: 1rem; border-collapse: separate; border-spacing: 0; padding: .3rem .8rem }}
.texts th {{ width: 7.5rem; white-space: nowrap; font-variant-numeric: tabular-nums }}
.texts td {{ overflow-wrap: anywhere }}
.texts .given td {{ font-weight: 600 }}
pre {{ overflow-x: auto; padding: .8rem; font-size: .85rem }}
summary {{ cursor: pointer; margin-top: .8rem }}
.note, footer {{ color: var(--faint); font-size: .85rem }}
footer {{ margin: 2rem 0 1rem }}
{_CURVES}"""
