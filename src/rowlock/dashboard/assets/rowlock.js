// Live pages: the server renders changed parts, which are fetched again and swapped in.

const FIRST_MS = 300, AGAIN_MS = 5_000, TIMES_MS = 10_000;

// -- times: "3 min ago" ---------------------------------------------------------------------------

const UNITS = [[31_536_000, "y"], [86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]];
// Use the server's clock: the local one may be wrong.
const aheadMs = Date.now() - Date.parse(document.documentElement.dataset.now);

function ago(iso) {
  const passed = (Date.now() - aheadMs - Date.parse(iso)) / 1_000;
  if (Math.abs(passed) < 5) return "now";
  const whole = Math.floor(Math.abs(passed));
  const [seconds, name] = UNITS.find(([seconds]) => whole >= seconds);
  const text = `${Math.floor(whole / seconds)} ${name}`;
  return passed > 0 ? `${text} ago` : `in ${text}`;
}

function tellTimes(root = document) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const text = ago(time.dateTime);
    if (time.textContent !== text) time.textContent = text;
  }
}

// -- swapping -------------------------------------------------------------------------------------

/** The HTML that the server sent for each part, to detect changes: the displayed times change locally. */
const sent = new Map();
const plain = (part) => part.outerHTML.replace(/<time[^>]*>[^<]*<\/time>/g, (time) => time.replace(/>[^<]*</, "><"));

function remember() {
  for (const part of document.querySelectorAll("[data-swap][id]")) sent.set(part.id, plain(part));
}

/** Returns whether someone is filling in a form in this part: such a part is not swapped. */
function inUse(part) {
  if (part.querySelector("dialog[open]")) return true;
  for (const form of part.matches("form") ? [part] : part.querySelectorAll("form")) {
    if (form.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")) return true;
    for (const field of form.elements) {
      if (field.type === "file" ? field.files.length : field.type === "checkbox" || field.type === "radio"
        ? field.checked !== field.defaultChecked
        : "defaultValue" in field && field.type !== "hidden" && field.value !== field.defaultValue) return true;
    }
  }
  return false;
}

/** Returns a selector that finds an element again in the new version of its part. */
function addressOf(element, part) {
  if (element.id) return `#${CSS.escape(element.id)}`;
  const name = element.localName;
  if (element.href) return `${name}[href="${CSS.escape(element.getAttribute("href"))}"]`;
  const form = element.closest("form");
  if (form && part.contains(form)) return `form[action="${CSS.escape(form.getAttribute("action") ?? "")}"] ${name}`;
  return name === "summary" && element.parentElement.id ? `#${CSS.escape(element.parentElement.id)} > summary` : null;
}

function replace(part, fresh) {
  const focused = part.contains(document.activeElement) ? addressOf(document.activeElement, part) : null;
  const opened = [...part.querySelectorAll("details")].map((details) => [details.id, details.open]);
  const scrolled = [...part.querySelectorAll(".scroll, pre")].map((box) => [box.scrollLeft, box.scrollTop]);
  part.replaceWith(fresh);
  const details = [...fresh.querySelectorAll("details")];
  opened.forEach(([id, open], index) => {
    const same = id ? details.find((each) => each.id === id) : details[index];
    if (same) same.open = open;
  });
  [...fresh.querySelectorAll(".scroll, pre")].forEach((box, index) => {
    if (scrolled[index]) [box.scrollLeft, box.scrollTop] = scrolled[index];
  });
  if (focused) fresh.querySelector(focused)?.focus({ preventScroll: true });
}

async function refresh() {
  const answer = await fetch(location.href, { headers: { accept: "text/html", "x-rowlock-live": "1" } });
  if (answer.redirected) return location.reload(); // the session has ended
  if (!answer.ok) return;
  swap(new DOMParser().parseFromString(await answer.text(), "text/html"));
}

/** Swap in every part that has changed. */
function swap(fresh) {
  for (const part of document.querySelectorAll("[data-swap][id]")) {
    const next = fresh.getElementById(part.id);
    if (!next || inUse(part)) continue;
    const text = plain(next);
    if (sent.get(part.id) === text) continue;
    sent.set(part.id, text);
    replace(part, document.adoptNode(next));
  }
  const live = document.querySelector("main"), then = fresh.querySelector("main");
  if (then && live.dataset.live !== then.dataset.live) { // there is nothing more to hear, or something else
    if (then.dataset.live) live.dataset.live = then.dataset.live; else delete live.dataset.live;
    listen();
  }
  tellTimes();
  document.dispatchEvent(new CustomEvent("rowlock:refreshed"));
}

// -- listening ------------------------------------------------------------------------------------

/** Minimum time between two fetches; an event within it causes one more. */
const betweenMs = () => Number(document.querySelector("main").dataset.refreshMs ?? 2_000);

let source = null, timer = null, refreshedAt = 0, heardAt = 0, againMs = AGAIN_MS, wanted = false, busy = false;

function heard() {
  heardAt = Date.now();
  soon();
}

function soon() {
  wanted = true;
  if (timer || busy || document.hidden) return;
  timer = setTimeout(now, Math.max(FIRST_MS, refreshedAt + betweenMs() - Date.now()));
}

async function now() {
  timer = null;
  if (document.hidden) return;
  // The server's answer may be older than the event: fetch once more a little later.
  wanted = Date.now() - heardAt < betweenMs();
  busy = true;
  try {
    await refresh();
  } catch {
    wanted = true; // the server is away: the listener comes back before we do
  } finally {
    busy = false;
    refreshedAt = Date.now();
  }
  if (wanted && source?.readyState === EventSource.OPEN) soon();
}

function told(sign, on) {
  if (!sign) return;
  sign.hidden = false;
  sign.toggleAttribute("data-on", on);
  sign.textContent = on ? "Live" : "Offline";
}

function listen() {
  source?.close();
  source = null;
  const address = document.querySelector("main")?.dataset.live;
  const sign = document.getElementById("live");
  // A hidden tab closes its connection: browsers allow few connections for all tabs together.
  if (!address || document.hidden) return;
  const own = source = new EventSource(address);
  own.onopen = () => { told(sign, true); againMs = AGAIN_MS; heard(); }; // what changed since the page was made
  own.onerror = () => {
    told(sign, false);
    if (own.readyState !== EventSource.CLOSED) return; // it comes back by itself
    soon(); // which finds out when the session has ended
    setTimeout(() => { if (source === own) listen(); }, againMs);
    againMs = Math.min(againMs * 2, 60_000);
  };
  const kinds = document.querySelector("main").dataset.liveOn?.split(" ") ?? ["job", "import", "queue"];
  for (const kind of [...kinds, "gap"]) own.addEventListener(kind, heard);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && document.querySelector("main")?.dataset.live) soon();
  listen();
});
addEventListener("pagehide", () => source?.close());
addEventListener("pageshow", (event) => { if (event.persisted) { listen(); soon(); } });

// -- posting once ---------------------------------------------------------------------------------
// A double click posts once: a form is not posted again until its answer has arrived.

const ANSWER_MS = 20_000; // after that the user may have stopped the request, which fires no event
const posted = new Map();

addEventListener("submit", (event) => {
  const form = event.target;
  if (event.defaultPrevented || form.getAttribute("method") !== "post") return;
  // Compare contents, not elements: the form may have been swapped meanwhile.
  const what = `${form.getAttribute("action")}?${new URLSearchParams(new FormData(form, event.submitter))}`;
  if (Date.now() - (posted.get(what) ?? 0) < ANSWER_MS) event.preventDefault();
  else posted.set(what, Date.now());
});

// The answer may arrive before the second click, which would then hit a button of the new page.
addEventListener("click", (event) => {
  const button = event.target.closest?.("button");
  if (event.detail > 1 && button?.type === "submit" && button.form?.getAttribute("method") === "post") event.preventDefault();
}, true);

addEventListener("pageshow", () => posted.clear());

// -- uploads (imports page) -----------------------------------------------------------------------
// The form also works without this. It adds the server's hints about a file before the upload, and the progress.

document.documentElement.classList.add("scripted");

function uploads(form) {
  const drop = form.querySelector(".drop"), field = form.elements.file, kind = form.elements.type;
  const sending = form.querySelector("#sending"), bar = sending.querySelector("progress"), sent = form.querySelector("#sent");
  const hint = form.querySelector("#hint");
  const page = (text) => new DOMParser().parseFromString(text, "text/html");
  const mega = (bytes) => (bytes / 1e6).toLocaleString("en", { maximumFractionDigits: bytes < 1e7 ? 1 : 0 });
  let request = null, chosenByHand = false, looks = 0;

  /** Show the server's answer about the file, replacing the previous one. */
  function answer(fresh) {
    const now = form.querySelector("#answer"), next = fresh.querySelector("#answer, #problem");
    now.replaceChildren(...(next ? document.adoptNode(next).childNodes : []));
    tellTimes(now);
  }

  async function look() {
    const mine = ++looks; // what is said of a file counts no more when another is chosen, or this one was sent
    answer(page(""));
    const file = field.files[0];
    drop.classList.toggle("has", Boolean(file));
    if (!file) return;
    const asked = new URLSearchParams({ file: file.name, size: file.size });
    const said = await fetch(`${form.action}?${asked}`, { headers: { accept: "text/html", "x-rowlock-live": "1" } });
    const fresh = page(await said.text());
    if (!said.ok || mine !== looks) return;
    answer(fresh);
    const next = fresh.querySelector("#type");
    if (next && !chosenByHand) {
      kind.value = next.value;
      hint.textContent = fresh.querySelector("#hint").textContent;
      show();
    }
  }

  /** Show the columns of the selected type only. */
  function show() {
    for (const each of document.querySelectorAll("details[data-type]")) each.open = each.dataset.type === kind.value;
  }

  function send(event) {
    event.preventDefault();
    if (request) return;
    looks += 1;
    const file = field.files[0], given = new FormData();
    const before = new FormData(form);
    if (event.submitter?.name) before.set(event.submitter.name, event.submitter.value);
    if (event.submitter?.name === "force") before.set("dryRun", "false");
    before.delete("file");
    for (const [name, value] of before) given.append(name, value);
    given.append("file", file); // last: what is wrong with the rest is said before all of it has come
    request = new XMLHttpRequest();
    request.upload.onprogress = ({ loaded, total }) => {
      bar.value = (100 * loaded) / total;
      sent.textContent = loaded < total ? `Uploading ${file.name}: ${mega(loaded)} of ${mega(total)} MB` : "Upload complete; waiting for the server…";
    };
    request.onload = () => {
      const there = new URL(request.responseURL);
      if (request.status === 200 && there.pathname !== new URL(form.action).pathname) return location.assign(there);
      answer(page(request.responseText));
      over();
    };
    request.onerror = () => broken("The connection was lost during the upload, or the server refused the file. Try again.");
    request.onabort = () => broken("The upload was stopped. Nothing was stored.");
    bar.value = 0;
    sent.textContent = `Uploading ${file.name}`;
    busy(true);
    request.open("POST", form.action);
    request.setRequestHeader("accept", "text/html");
    request.send(given);
  }

  function broken(text) {
    const told = document.createElement("p");
    told.className = "notice bad";
    told.textContent = text;
    form.querySelector("#answer").replaceChildren(told);
    over();
  }

  function over() {
    request = null;
    busy(false);
    form.querySelector("#answer").scrollIntoView({ block: "nearest" });
  }

  function busy(is) {
    sending.hidden = !is;
    for (const button of form.querySelectorAll("button:not(#stop-sending)")) button.disabled = is;
    field.disabled = is;
  }

  field.addEventListener("change", look);
  kind.addEventListener("change", () => { chosenByHand = Boolean(kind.value); hint.textContent = ""; show(); });
  form.addEventListener("submit", send);
  form.querySelector("#stop-sending").addEventListener("click", () => request?.abort());
  addEventListener("pageshow", (event) => { if (event.persisted && request) over(); }); // they came back to the form
  addEventListener("beforeunload", (event) => { if (request && request.readyState < 4) event.preventDefault(); });

  // Without this, the browser would open a file that is dropped outside the box.
  for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => event.preventDefault());
  for (const kind of ["dragenter", "dragover"]) addEventListener(kind, () => drop.classList.add("over"));
  for (const kind of ["dragleave", "drop"]) addEventListener(kind, () => drop.classList.remove("over"));
  addEventListener("drop", (event) => {
    if (!event.dataTransfer?.files.length || request) return;
    field.files = event.dataTransfer.files;
    look();
  });
  if (field.files.length) look(); // the browser remembers what was chosen before
}

const uploadForm = document.getElementById("upload");
if (uploadForm) uploads(uploadForm);

// -- begin ----------------------------------------------------------------------------------------

remember();
tellTimes();
setInterval(tellTimes, TIMES_MS);
listen();
