// The model layer by layer: every matrix product is a box, the cache is dashed, norms and additions are small.

import * as einsum from "./einsum.js";
import * as numbers from "./numbers.js";
import * as paths from "./paths.js";
import * as dom from "./dom.js";

const { h } = dom;

export function picture(counted, selected, choose) {
	const found = counted.way.groups
		.map((group, index) => ({ group, index }))
		.filter(({ group }) => group.lines.length)
		.map(({ group, index }) => block(counted, group, index, selected, choose));
	return h("div.model", found);
}

function block(counted, group, index, selected, choose) {
	const rows = [];
	for (const line of group.lines) {
		const { part, leaf } = paths.parse(line.path);
		const last = rows.at(-1);
		if (last?.part === part) last.lines.push({ line, leaf });
		else rows.push({ part, lines: [{ line, leaf }] });
	}
	const repeated = group.blocks !== "";
	const title = repeated
		? `${side(group)}layers ${elided(group.blocks)}`
		: outside(group, counted.way.groups.slice(0, index));
	return h(
		`div.block${repeated && group.count > 1n ? ".many" : ""}`,
		h(
			"h3",
			title,
			group.kind ? h("em", group.kind) : null,
			repeated ? h("b", `× ${numbers.grouped(group.count)}`) : null,
		),
		rows.map(row => sublayer(counted, group, index, row, selected, choose)),
	);
}

const side = group => (group.lines[0].path.startsWith("mtp") ? "multi-token prediction, " : "");

// A group outside the layers comes before those of its side (embedding) or after them (output).
function outside(group, before) {
	const of = each => paths.parse(each.lines[0]?.path ?? "").side,
		encoder = of(group);
	const after = before.some(each => each.blocks && of(each) === encoder);
	return `${encoder ? "encoder " : ""}${after ? "output" : "embedding"}`;
}

// A long list of layer numbers by its ends.
function elided(spans) {
	const parts = spans.split(",").map(span => span.replace("-", "–"));
	return parts.length > 4 ? `${parts.slice(0, 3).join(", ")}, … ${parts.at(-1)}` : parts.join(", ");
}

function sublayer(counted, group, index, { part, lines }, selected, choose) {
	const small = lines.every(({ line }) => line.line === "pointwise");
	if (small) return h("p.small", h(`i.${part.endsWith("_add") ? "plus" : "dash"}`), part.replaceAll("_", " "));
	const boxes = lines.map(({ line, leaf }) => box(counted, group, index, line, leaf || part, selected, choose));
	return h("div.sublayer", h("h4", paths.parse(lines[0].line.path).part.replaceAll("_", " ")), h("div.boxes", boxes));
}

function box(counted, group, index, line, name, selected, choose) {
	const id = `${index} ${line.path}${line.line === "state" ? " state" : ""}`,
		label = name.replaceAll("_", " ");
	if (line.line === "pointwise") return h("span.point", { title: `${label}: ${line.spec}` }, label);
	const { hue, value, share } = figures(counted, group, line);
	const kind = line.line === "state" ? "cached" : line.line === "embedding" || line.unused ? "stored" : "work";
	return h(
		`button.box.${kind}.${hue}`,
		{
			type: "button",
			"data-line": id,
			"aria-pressed": String(selected === id),
			onclick: () => choose(id),
			"--share": String(share ?? 0),
		},
		h("b", label),
		h("span", h("span", value), share === null ? null : h("span", percent(share))),
	);
}

const percent = share => `${(100 * share).toFixed(1)}%`;

// The text of a box: FLOPs and their share of a product, bytes of a cache, parameters of an embedding.
function figures(counted, group, line) {
	if (line.line === "state") {
		const own = counted.states.find(state => state.line === line && state.group === group);
		return { hue: "cache", value: numbers.binary(own.bytes), share: null };
	}
	const product = counted.products.find(one => one.line === line && one.group === group);
	if (!product) {
		const tensor = counted.tensors.find(one => one.path.startsWith(`${line.weight ?? line.path}.`));
		const stored = tensor ? numbers.people(tensor.count * tensor.elements) : "stored above";
		return { hue: paths.hue(paths.heading(line.path)), value: line.unused ? "never called" : stored, share: null };
	}
	const share = counted.flops ? Number(numbers.decimals(product.flops, counted.flops, 6)) : 0;
	return { hue: paths.hue(product.name), value: numbers.si(product.flops), share };
}

// The line that was chosen, or the product with the most FLOPs.
export function found(counted, selected) {
	for (const [index, group] of counted.way.groups.entries()) {
		for (const line of group.lines) {
			const id = `${index} ${line.path}${line.line === "state" ? " state" : ""}`;
			if (id === selected) return { id, group, line };
		}
	}
	const most = counted.products.reduce((best, one) => (one.flops > best.flops ? one : best), counted.products[0]);
	const index = counted.way.groups.indexOf(most.group);
	return { id: `${index} ${most.line.path}`, group: most.group, line: most.line };
}

// An einsum spec in the model's axes, each with its meaning.
export function spelled(spec, group, legend) {
	return einsum
		.renamed(spec, group.names)
		.split(/([A-Z][a-z]*[0-9]*)/)
		.map(part => {
			if (!/^[A-Z]/.test(part)) return part.replace("->", "→");
			return h("abbr", { title: legend[part] ?? "", "data-axis": part }, part);
		});
}
