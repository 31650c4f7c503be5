// Start: take the key, learn what it allows, show the page of the address.
import { Component, html, render, useEffect, useState } from "./lib/html.js";
import { get } from "./lib/api.js";
import { asProblem } from "./lib/hooks.js";
import { usePlace } from "./lib/router.js";
import { onSession, session, setAccess, signOut, takeKeyFromAddress } from "./lib/session.js";
import { Toasts } from "./parts/dialog.js";
import { Shell } from "./parts/shell.js";
import { SignIn } from "./parts/sign_in.js";
import { Button, Loading, ProblemNote } from "./parts/ui.js";
import { applyTheme } from "./lib/theme.js";

/** @type {Record<string, () => Promise<{ default: any }>>} */
const PAGES = {
  conversations: () => import("./pages/conversations.js"),
  thread: () => import("./pages/thread.js"),
  compare: () => import("./pages/compare.js"),
  context: () => import("./pages/context.js"),
  search: () => import("./pages/search.js"),
  clients: () => import("./pages/clients.js"),
  memory: () => import("./pages/memory.js"),
  notifications: () => import("./pages/notifications.js"),
  insights: () => import("./pages/insights.js"),
  privacy: () => import("./pages/privacy.js"),
  health: () => import("./pages/health.js"),
};

function App() {
  const [, update] = useState(0);
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const place = usePlace();
  useEffect(() => onSession(() => update((round) => round + 1)), []);
  useEffect(() => {
    takeKeyFromAddress();
  }, [place]);
  useEffect(() => {
    if (session.access) return;
    setProblem(null);
    get("v1/access").then(setAccess, (error) => setProblem(asProblem(error)));
  }, [session.key, session.access === null]);
  if (problem?.status === 401 || problem?.status === 403) return html`<${SignIn} problem=${session.key || problem.status === 403 ? problem : null} />`;
  if (problem) return html`<main class="alone"><${ProblemNote} problem=${problem} retry=${() => location.reload()} /></main>`;
  if (!session.access) return html`<main class="alone"><${Loading} on=${true} /></main>`;
  return html`<${Shell} page=${place.page}>
    <${Guard} key=${`${place.page}/${place.id}/${session.owner}`}><${Page} place=${place} /><//>
  <//>`;
}

/** Load the module of a page when it is first opened. @param {{ place: import("./lib/router.js").Place }} props */
function Page({ place }) {
  const [view, setView] = useState(/** @type {any} */ (null));
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    const load = PAGES[place.page] ?? PAGES.conversations;
    load().then((module) => setView(() => module.default), () => setFailed(true));
  }, [place.page]);
  useEffect(() => {
    // The focus would stay on a link of the navigation or of a page that is gone. A page may place it itself.
    if (view && !document.querySelector("main *:focus")) /** @type {HTMLElement | null} */ (document.querySelector("main h1"))?.focus({ preventScroll: true });
  }, [view]);
  if (failed) {
    return html`<div class="note warn" role="alert"><p>The server was updated, or it cannot be reached. Load the console again.</p>
      <${Button} onClick=${() => location.reload()}>Reload<//></div>`;
  }
  return view ? html`<${view} id=${place.id} query=${place.query} />` : html`<${Loading} on=${true} />`;
}

/** A page that fails leaves the navigation usable. */
class Guard extends Component {
  constructor() {
    super();
    this.state = { error: null };
  }

  /** @param {unknown} error */
  componentDidCatch(error) {
    const problem = asProblem(error);
    if (problem.isAccess) signOut();
    this.setState({ error: problem });
  }

  render(/** @type {any} */ props, /** @type {any} */ state) {
    return state.error ? html`<${ProblemNote} problem=${state.error} retry=${() => location.reload()} />` : props.children;
  }
}

applyTheme();
takeKeyFromAddress();
const root = /** @type {HTMLElement} */ (document.getElementById("app"));
render(html`<${App} /><${Toasts} />`, root);
