// The head of the page and its notes: the model's name and source, the command, the notes.

import * as notes from "./notes.js";
import * as numbers from "./numbers.js";
import * as count from "./count.js";
import * as report from "./report.js";
import * as formula from "./formula.js";
import * as dom from "./dom.js";

const { h } = dom;
const g = numbers.grouped;

// Name, source and expected parameters, and warnings.
export function header({ counted, complaints }) {
	const { model, state: now } = counted;
	const repeated = counted.way.groups.filter(group => group.blocks && !group.lines[0].path.startsWith("mtp"));
	const layers = repeated.reduce((sum, group) => sum + group.count, 0n);
	const config = ["copied", "transcribed", "fetched", "cached"].includes(model.kind);
	const link = model.url
		? [
				config ? ` · config ${model.kind} from ` : " · from ",
				h("a", { href: model.url, rel: "noopener noreferrer" }, model.url.replace("https://", "")),
			]
		: model.about
			? ` · ${model.about}`
			: "";
	const agrees = Object.keys(count.changed(model, now)).length === 0 && model.met;
	const warnings = new Set([...complaints, ...model.warnings, ...notes.lengths(counted)]);
	return [
		h("h1", model.name, fields(model)),
		h(
			"p.about",
			`${model.family} · ${g(layers)} layers · context ${g(model.context)}`,
			link,
		),
		agrees ? h("p.expected", `✓ ${g(counted.params)} parameters: the ${model.expected_from}`) : null,
		[...warnings].map(text => h("p.warning", { role: "status" }, text)),
	].flat();
}

const fields = model => {
	const set = Object.entries(model.set)
		.map(([name, value]) => `${name}=${JSON.stringify(value)}`)
		.join(", ");
	return set ? h("small", ` ${set}`) : "";
};

// The command that prints the same number.
export function command(counted) {
	const { model, state: now } = counted;
	const text = report.command(model, now),
		prompt = text.startsWith("load(") ? ">>> " : "$ ";
	return h(
		"div.command",
		h("code", { id: "command", "data-command": text }, h("span", prompt), text),
		copies("copy", "Copy the command", () => text),
		latent(counted),
	);
}

// The form of latent attention that the step runs.
function latent({ ways, way }) {
	return ways.length > 1 ? h("p.hint", `Latent attention runs ${way.form}, the form with fewer FLOPs here.`) : null;
}

export function copies(label, title, text) {
	return h(
		"button.plain",
		{
			type: "button",
			"aria-label": title,
			onclick: async event => {
				const button = event.currentTarget;
				try {
					await navigator.clipboard.writeText(text());
					button.textContent = "copied";
				} catch {
					button.textContent = "clipboard not available";
				}
				setTimeout(() => {
					button.textContent = label;
				}, 1500);
			},
		},
		label,
	);
}

// The notes: three of them, the others on request.
export function notesPanel(counted) {
	const [first, others] = notes.shown(counted).map(each => each.map(one => h("li", one.text)));
	const more = others.length ? h("details.more", h("summary", `${others.length} more`), h("ul", others)) : null;
	return dom.panel("notes", "Notes", null, h("ul", first), more);
}

export function markdown(counted) {
	const rows = count
		.shown(counted.products)
		.map(
			row =>
				`| ${row.line.path} | ${numbers.grouped(row.flops)} | ${numbers.percent(row.flops, counted.flops || 1n)} |`,
		);
	return [
		`**${counted.model.name}**`,
		"",
		report.answer(counted),
		"",
		"| matmul | FLOPs | share |",
		"|---|---:|---:|",
		...rows,
		`| **total** | **${numbers.grouped(counted.flops)}** | |`,
		"",
	].join("\n");
}

export function latex(counted) {
	const found = formula.trees(counted);
	return found ? formula.latex(found.flops) : "";
}
