// The formulas as MathML, evaluated and checked against the sum of the lines.

import * as einsum from "./einsum.js";
import * as ledger from "./ledger.js";
import * as numbers from "./numbers.js";
import * as dom from "./dom.js";

const { h, math } = dom;
const OF = { flops: "FLOPs of a forward pass", params: "Parameters", cache: "Cached elements" };

// The formulas as trees; null if an axis has several sizes, or the page has too many models.
export function trees({ model, way }) {
	const found = model.formulas?.[model.ways.findIndex(one => one.form === way.form)];
	return found ? { ...model.formulas[0], ...found } : null;
}

export function formulas(counted) {
	const { model } = counted,
		found = trees(counted);
	if (!found) return null;
	const values = axisNames(counted);
	const body = Object.entries(OF)
		.filter(([name]) => found[name])
		.map(([name, title]) => one(counted, name, title, found[name], values));
	const used = new Set(Object.values(found).flatMap(axesOf));
	const legend = [...used].map(axis => [axis, model.legend[axis] ?? BOUND[axis] ?? "", values[axis]]);
	return dom.panel(
		"formulas",
		"Formulas",
		`All query–key pairs${model.logits ? ", all logits" : ""}.`,
		body,
		h(
			"dl.legend",
			legend.map(([axis, meaning, value]) =>
				h(
					"div",
					h("dt", { "data-axis": axis }, axis),
					h("dd", meaning),
					h("dd.number", value === undefined ? "" : numbers.grouped(value)),
				),
			),
		),
	);
}

const BOUND = { Sw: "keys that a query sees in a windowed layer", Sk: "keys cached in a windowed layer" };

// Values of all axes of a formula: the model's sizes and those of the step.
function axisNames({ way, sizes, at }) {
	const found = { ...sizes, ...at };
	for (const group of way.groups) {
		for (const [axis, size] of Object.entries(group.axes)) found[group.names[axis] ?? axis] ??= size;
		const seen = ledger.bound(group, at),
			cached = ledger.bound(group, at, true);
		if ("W" in group.axes) Object.assign(found, { Sw: seen.S, Sk: cached.S });
		const made = [einsum.CHUNKS, einsum.ONE_BY_ONE, einsum.PATCHES, ...einsum.BOUND];
		for (const axis of made) if (axis in seen) found[axis] = seen[axis];
	}
	return found;
}

function one(counted, name, title, tree, values) {
	const result = evaluated(tree, values),
		lines = summed(counted, name);
	const agrees = result === lines;
	const note = counted.state.shared !== null && !agrees ? " The formula uses the configured number of heads." : "";
	return h(
		"figure.formula",
		{ "data-formula": name, "data-agrees": String(agrees) },
		h("figcaption", title),
		h(
			"div.wide.sums",
			{ tabindex: 0, role: "group", "aria-label": title },
			pieces(tree).map(piece => math("math", piece)),
		),
		h(
			agrees ? "p.agrees" : "p.differs",
			result === null ? "an axis has no value in this model" : `= ${numbers.grouped(result)} `,
			agrees
				? h("span", "✓ equals the sum of the lines")
				: h("span", `✗ the sum of the lines is ${numbers.grouped(lines)}.${note}`),
		),
	);
}

// The sum of the lines, with all pairs and all logits, as in the formula.
function summed({ way, at, state, tensors, states }, name) {
	if (name === "params") return einsum.sum(tensors.map(each => each.count * each.elements));
	if (name === "cache") return einsum.sum(states.map(each => each.elements));
	return ledger.totalFlops(way, state.last ? { ...at, O: at.T } : at);
}

// `B T^2` is B, and T squared.
const factors = powers => powers.split(" ").filter(Boolean).map(part => part.split("^"));

export function evaluated([coefficient, powers, inside], values) {
	let product = BigInt(coefficient);
	for (const [axis, power] of factors(powers)) {
		if (values[axis] === undefined) return null;
		product *= values[axis] ** BigInt(power ?? 1);
	}
	if (!inside) return product;
	const terms = inside.map(term => evaluated(term, values));
	return terms.includes(null) ? null : product * einsum.sum(terms);
}

function axesOf([, powers, inside]) {
	return [...factors(powers).map(([axis]) => axis), ...(inside ?? []).flatMap(axesOf)];
}

// A formula in pieces, between which a narrow page can break the line: the terms of its first bracket.
function pieces([coefficient, powers, inside]) {
	const factor = product(coefficient, powers, Boolean(inside));
	if (!inside) return [factor];
	const terms = inside.map((term, index) => [index ? sign("+") : null, ...written(term)].filter(Boolean));
	if (!factor.length) return terms;
	terms[0].unshift(...factor, sign("·"), sign("("));
	terms.at(-1).push(sign(")"));
	return terms;
}

function written([coefficient, powers, inside]) {
	const factor = product(coefficient, powers, Boolean(inside));
	if (!inside) return factor;
	const sum = inside.flatMap((term, index) => [...(index ? [sign("+")] : []), ...written(term)]);
	return [...factor, ...(factor.length ? [sign("·")] : []), sign("("), ...sum, sign(")")];
}

const sign = text => math("mo", { stretchy: "false", form: text === "+" ? "infix" : null }, text);

// Coefficient and axes with their powers; nothing for a 1 before a bracket.
function product(coefficient, powers, bracket) {
	const found = factors(powers).map(([axis, power]) =>
		power ? math("msup", axisSymbol(axis), math("mn", power)) : axisSymbol(axis),
	);
	if (coefficient !== 1 || (!found.length && !bracket)) found.unshift(math("mn", String(coefficient)));
	return found.flatMap((factor, index) => (index ? [sign("·"), factor] : [factor]));
}

function axisSymbol(axis) {
	if (axis.length === 1) return math("mi", { "data-axis": axis }, axis);
	return math("msub", { "data-axis": axis }, math("mi", axis[0]), math("mi", axis.slice(1)));
}

// The formula as LaTeX reads it.
export function latex([coefficient, powers, inside], top = true) {
	const axis = name => (name.length === 1 ? name : `${name[0]}_{\\mathrm{${name.slice(1)}}}`);
	const found = factors(powers).map(([name, power]) => (power ? `${axis(name)}^{${power}}` : axis(name)));
	if (inside) {
		const sum = inside.map(term => latex(term, false)).join(" + ");
		found.push(top && !found.length && coefficient === 1 ? sum : `\\left(${sum}\\right)`);
	}
	if (coefficient !== 1 || !found.length) found.unshift(String(coefficient));
	return found.join("\\,");
}
