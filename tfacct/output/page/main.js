// The page: knobs give a state, the state numbers, the numbers panels. No request is ever made.

import * as data from "./data.js";
import * as models from "./models.js";
import * as notes from "./notes.js";
import * as state from "./state.js";
import * as count from "./count.js";
import * as report from "./report.js";
import * as dom from "./dom.js";
import * as bars from "./bars.js";
import * as picture from "./picture.js";
import * as detail from "./detail.js";
import * as charts from "./charts.js";
import * as cards from "./cards.js";
import * as roofline from "./roofline.js";
import * as treemap from "./treemap.js";
import * as training from "./training.js";
import * as formula from "./formula.js";
import * as tables from "./tables.js";
import * as knobs from "./knobs.js";
import * as head from "./head.js";
import * as focus from "./focus.js";
import * as appearance from "./appearance.js";

const { h, byId } = dom;
const view = {
	line: null,
	area: "FLOPs",
	sort: null,
	order: { column: 2, down: false },
	query: "",
	every: false,
	complaints: [],
};
const REST = 120; // milliseconds after the last change, when the slow panels are drawn
let page, start, now, counted, other,
	resting = 0;

// The knobs at the start: whole numbers are texts in the data.
function begun(given) {
	const found = { ...state.STILL, sizes: {} };
	for (const [name, value] of Object.entries(given)) found[name] = /^[0-9]+$/.test(value) ? BigInt(value) : value;
	return found;
}

// Set some knobs: their values, or a function of the present ones; null resets all to the model as configured.
function update(asked) {
	const changed = typeof asked === "function" ? asked(now) : asked;
	const reset = { ...start, model: now.model, against: now.against, sizes: {} };
	now = state.fitted(changed === null ? { ...reset, shared: null, form: null } : { ...now, ...changed }, page);
	if (changed === null || changed.model || changed.form !== undefined) view.line = null;
	view.complaints = [];
	remember();
	draw();
}

// The address restores these knobs. A frame in a notebook has no address of its own.
function remember() {
	try {
		history.replaceState(null, "", state.fragment(now, start, page) || location.pathname + location.search);
	} catch {
		return;
	}
}

function fromLink() {
	const read = state.parse(location.hash, start, page);
	now = read.state;
	view.complaints = read.complaints;
	draw();
}

// The main numbers at once; charts, devices and the gallery when no knob has changed for a while.
function draw() {
	const focused = focus.focused();
	const model = state.chosen(page, now.model);
	counted = count.count(model, now);
	other = compared(model);
	const names = [model.name, other ? (now.against === "config" ? "as configured" : other.model.name) : ""];
	if (now.against === "config") names[0] = "as set";
	const fresh = h("div", { id: "knobs", "data-model": model.name }, knobs.knobs(page, now, update));
	if (byId("knobs").dataset.model === model.name) focus.renewed(byId("knobs"), fresh);
	else byId("knobs").replaceWith(fresh);
	byId("head").replaceChildren(...head.header({ counted, complaints: view.complaints }).filter(Boolean));
	byId("against").value = now.against ?? "";
	byId("light").replaceChildren(
		bars.tiles(counted, other, names[1]),
		head.command(counted),
		bars.bars(counted, other, names),
		lines(),
	);
	focus.refocused(focused);
	clearTimeout(resting);
	resting = setTimeout(() => rest(names), document.body.dataset.drawn ? REST : 0);
}

function rest(names) {
	const focused = focus.focused(),
		device = page.devices.find(one => one.id === now.card);
	const go = ctx => update({ ctx });
	byId("rest").replaceChildren(
		...[
			h(
				"div.pair",
				crosses() && !counted.model.fixed ? charts.flops(counted, go) : null,
				counted.model.has_cache && counted.dtype !== null ? charts.memory(counted, device, go) : null,
			),
			cards.cards(counted, page.devices, page.usable, now.card, view.every, {
				choose: card => update({ card }),
				more: () => {
					view.every = !view.every;
					rest(names);
				},
			}),
			h(
				"div.pair",
				roofline.roofline(counted, device),
				treemap.treemap(counted, view.area, area => {
					view.area = area;
					rest(names);
				}),
			),
			training.training(counted, device),
			formula.formulas(counted),
			tables.products(counted, view.sort, column => {
				view.sort = resorted(view.sort, column);
				rest(names);
			}),
			other ? tables.comparison(counted, other, names) : null,
			page.models.length > 1 ? gallery(device) : null,
			head.notesPanel(counted),
		].filter(Boolean),
	);
	document.body.dataset.drawn = "yes";
	focus.refocused(focused);
}

const resorted = (sort, column) => ({ column, down: sort?.column === column ? !sort.down : column > 1 });
const crosses = () => counted.products.some(product => product.name === "attn_scores_values");

function compared(model) {
	if (now.against === null) return null;
	if (now.against === "config") {
		return count.count(model, { ...now, shared: null, form: null, sizes: {} });
	}
	const against = state.chosen(page, now.against);
	return count.count(against, state.fitted({ ...now, model: against.name, shared: null, form: null, sizes: {} }, page));
}

function lines() {
	const chosen = picture.found(counted, view.line),
		device = page.devices.find(one => one.id === now.card);
	const choose = id => {
		view.line = id;
		draw();
	};
	return dom.panel(
		"lines",
		"Layer by layer",
		"Select a box for its arithmetic.",
		h("div.columns", picture.picture(counted, chosen.id, choose), detail.detail(counted, chosen, device)),
	);
}

function gallery(device) {
	const acts = {
		order: column => {
			view.order = resorted(view.order, column);
			list();
		},
		choose: model => {
			update({ model, shared: null, form: null, sizes: {}, dtype: null });
			scrollTo({ top: 0 });
		},
	};
	const body = h("div");
	const list = () => {
		const focused = focus.focused();
		body.replaceChildren(...tables.gallery(page, now, device, view.query, view.order, acts));
		focus.refocused(focused);
	};
	const search = h("input", {
		type: "search",
		id: "search",
		value: view.query,
		"aria-label": "Search models",
		placeholder: "llama 8b",
		oninput: event => {
			view.query = event.target.value;
			list();
		},
	});
	list();
	return dom.panel("gallery", "All models with these settings", null, search, body);
}

// The bar at the top: the comparison, and buttons that copy.
function tools() {
	const against = h(
		"select",
		{ id: "against", onchange: event => update({ against: event.target.value || null }) },
		[["", "nothing"], ["config", "as configured"], ...page.models.map(model => [model.name, model.name])].map(
			([value, text]) => h("option", { value, selected: value === (now.against ?? "") }, text),
		),
	);
	const link = () => location.href.split("#")[0] + state.fragment(now, start, page);
	byId("tools").replaceChildren(
		h("label", { for: "against" }, "Compare with"),
		against,
		head.copies("Link", "Copy a link to these settings", link),
		head.copies("JSON", "Copy the output of tfacct flops --json", json),
		head.copies("Markdown", "Copy the matmuls as a Markdown table", () => head.markdown(counted)),
		head.copies("LaTeX", "Copy the FLOPs formula in LaTeX", () => head.latex(counted)),
		h("button.plain", { type: "button", onclick: () => print() }, "Print"),
		h("button.plain", { type: "button", id: "theme", onclick: () => appearance.toggle() }, "Light / dark"),
	);
}

// The output of `tfacct flops --json`.
const json = () => report.json(report.document(counted, notes.notes(counted), page.record));

// Replaces the view without a script.
async function begin() {
	const given = await data.read(byId("data").textContent);
	if (given === null) {
		byId("still").append(h("p.warning", "This browser is too old for this page: it has no DecompressionStream."));
		return;
	}
	page = models.read(given);
	now = start = state.fitted(begun(page.start), page);
	globalThis.tfacct = { json, update };
	document.documentElement.classList.add("scripted");
	if (matchMedia("(max-width: 48rem)").matches) byId("controls").open = false;
	byId("still").remove();
	addEventListener("hashchange", fromLink);
	document.addEventListener("mouseover", appearance.marked);
	tools();
	fromLink();
}

begin();
