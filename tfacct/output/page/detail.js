// One line of the ledger in full: formula, values, result, operands and bytes moved.

import * as einsum from "./einsum.js";
import * as lines from "./lines.js";
import * as numbers from "./numbers.js";
import * as paths from "./paths.js";
import * as picture from "./picture.js";
import * as storage from "./storage.js";
import * as dom from "./dom.js";

const { h, svg } = dom;

export function detail(counted, { group, line }, device) {
	const hue =
		line.line === "state"
			? "cache"
			: paths.hue(line.line === "matmul" ? paths.component(line) : paths.heading(line.path));
	const head = [
		h(`h3.${hue}`, paths.short(line.path)),
		h("p.spec", picture.spelled(line.spec, group, counted.model.legend)),
	];
	const product = counted.products.find(one => one.line === line && one.group === group);
	return h(
		"div.detail",
		{ "aria-live": "polite" },
		head,
		product ? ofProduct(counted, product, device) : ofOther(counted, group, line),
	);
}

function ofProduct(counted, product, device) {
	const { line, group, axes, dims, forward } = product,
		{ model, state } = counted;
	const every = einsum.einsum(line.spec).every,
		masked = state.masked && line.mask;
	const renamed = axis => group.names[axis] ?? axis;
	const layers = group.axis === null ? [] : [group.axis];
	const axisNames = [
		"2",
		...(masked ? ["pairs"] : []),
		...every.filter(axis => !masked || !lines.queriesAndKeys(line).includes(axis)).map(renamed),
		...layers,
	];
	const values = [...lines.factors(line, axes, state.masked), ...(layers.length ? [group.count] : [])];
	return [
		h(
			"p.symbols",
			axisNames.map((axis, at) => [
				at ? "·" : "",
				h("abbr", { title: model.legend[axis] ?? "", "data-axis": axis }, axis),
			]),
		),
		h("p.values", values.map(numbers.grouped).join(" · ")),
		h("p.result", "= ", h("strong", numbers.grouped(forward)), " FLOPs"),
		operands(dims),
		h("dl.facts", facts(counted, product, device).flatMap(([name, value]) => [h("dt", name), h("dd", value)])),
	];
}

function facts(counted, product, device) {
	const { line, group, dims, moved, forward, backward, flops, kernel } = product;
	const { m, k, n, times } = dims,
		{ state } = counted,
		g = numbers.grouped;
	const found = [
		["m × k × n", `${g(m)} × ${g(k)} × ${g(n)}`],
		["times", `${g(times)}${group.count > 1n ? `, in ${g(group.count)} layers` : ""}`],
		["share", counted.flops ? numbers.percent(flops, counted.flops) : "–"],
	];
	if (state.train) found.push(["forward + backward", `${g(forward)} + ${g(backward)}`]);
	if (counted.dtype !== null) {
		found.push(
			["reads", `${numbers.binary(moved.left)} + ${numbers.binary(moved.right)}`],
			["writes", kernel && !moved.written ? "nothing: attention is fused" : numbers.binary(moved.written)],
		);
		const whole = counted.kernels.find(one => one.products.includes(product)),
			each = whole.bytes ? `${g(numbers.decimals(whole.forward, whole.bytes, 2))}${ridge(whole, device)}` : "";
		if (each) found.push([kernel ? "FLOPs per byte of attention" : "FLOPs per byte", each]);
	}
	const stored = lines.parameters(line);
	if (stored.length) {
		const elements = einsum.sum(stored.map(one => einsum.size(group.axes, one.axes)));
		const all = numbers.people(lines.owners(group, line.path) * elements);
		found.push(["weights", line.bias ? `${all}, bias included` : all]);
	}
	if (line.weight) found.push(["weight of", paths.short(line.weight)]);
	if (line.expert_axis)
		found.push([
			"experts read",
			`${g(lines.touched(line, { ...group.axes, ...counted.at }))} at most, of ${g(group.axes[line.expert_axis])}`,
		]);
	if (line.mask) found.push(["mask", `${line.mask}${state.masked ? "" : ", all pairs counted"}`]);
	return found;
}

function ridge({ forward, bytes }, device) {
	if (!device?.ridge) return "";
	const side = Number(forward) / Number(bytes) < device.ridge ? "below" : "above";
	return `, ${side} the bf16 ridge of ${device.name}, ${device.ridge.toFixed(0)}`;
}

// m × k · k × n = m × n, on a logarithmic scale.
function operands({ m, k, n }) {
	const length = size => 16 + 4 * Math.log2(Number(size) + 1);
	const [M, K, N] = [m, k, n].map(length),
		middle = Math.max(M, K) / 2 + 16,
		GAP = 40;
	const box = (x, width, height, above, left) => [
		svg("rect.operand", { x, y: middle - height / 2, width, height, rx: 2 }),
		svg("text", { x: x + width / 2, y: middle - height / 2 - 5, "text-anchor": "middle" }, above),
		svg("text", { x: x - 5, y: middle + 4, "text-anchor": "end" }, left),
	];
	const second = 18 + K + GAP,
		third = second + N + GAP;
	const sign = (x, text) => svg("text.sign", { x, y: middle + 5, "text-anchor": "middle" }, text);
	const label = `${numbers.grouped(m)} by ${numbers.grouped(k)}, times ${numbers.grouped(k)} by ${numbers.grouped(n)}`;
	return svg(
		"svg.operands",
		{ viewBox: `0 0 ${third + N + 8} ${2 * middle}`, role: "img", "aria-label": label },
		box(18, K, M, "k", "m"),
		sign(18 + K + 12, "·"),
		box(second, N, K, "n", "k"),
		sign(second + N + 12, "="),
		box(third, N, M, "n", "m"),
	);
}

function ofOther(counted, group, line) {
	const g = numbers.grouped;
	if (line.line === "state") {
		const own = counted.states.find(state => state.line === line && state.group === group);
		const axes = einsum.axisNames(line.spec).map(axis => group.names[axis] ?? axis),
			how = storage.widthOf(line, counted.cache);
		return [
			h("p.symbols", [...axes, ...(group.axis === null ? [] : [group.axis])].join("·")),
			h("p.result", "= ", h("strong", g(own.elements)), " elements"),
			h(
				"dl.facts",
				h("dt", "bytes"),
				h("dd", `${g(own.bytes)} (${numbers.binary(own.bytes)})`),
				h("dt", "stored in"),
				h("dd", how === counted.cache ? "the dtype of the cache" : `${how.name}, independent of the cache dtype`),
			),
		];
	}
	const stored = lines.parameters(line),
		elements = einsum.sum(stored.map(one => einsum.size(group.axes, one.axes)));
	return [
		h("p.result", "= ", h("strong", g(lines.owners(group, line.path) * elements)), " parameters"),
		h(
			"p.aside",
			line.unused
				? "Stored, but never called."
				: "An embedding look-up: no matmul, no FLOPs.",
		),
	];
}
