// A training step's bytes at its peak, on one card and on several: counted in Python, shown as they are.

import * as einsum from "./einsum.js";
import * as numbers from "./numbers.js";
import * as says from "./says.js";
import * as dom from "./dom.js";

const { h } = dom;
const PARTS = [
	["mlp", "weights"],
	["ahead", "moments"],
	["head", "gradients"],
	["attention", "kept for the backward pass"],
	["norms", "made on the way"],
	["encoder", "gathered from other ranks"],
];

export function training({ model }, device) {
	const found = model.training;
	if (!found) return null;
	const title = "A training step, on one card and on several";
	if (found.why) return dom.panel("training", title, null, h("p.said", `Its bytes are not counted: ${found.why}.`));
	const aside = `As built, ${numbers.grouped(found.context)} tokens a rank, bf16 with AdamW; knobs do not change it.`;
	const steps = found.steps.map(([ranks, instant, ...parts]) => ({ ranks, instant, parts: parts.map(BigInt) }));
	const most = steps.reduce((best, step) => larger(best, einsum.sum(step.parts)), device.memory);
	const used = PARTS.filter((_, at) => steps.some(step => step.parts[at] > 0n));
	const command = says.typed("train", model, ["--ctx", found.context, "--fsdp", steps.at(-1).ranks]);
	return dom.panel(
		"training",
		title,
		aside,
		h("div.bars", steps.map(step => row(step, most, device))),
		dom.key(used),
		h(
			"p.said",
			"FSDP divides weights, gradients and moments among the ranks, not what is kept. ",
			h("code", command),
			" says it instant by instant.",
		),
	);
}

const larger = (one, other) => (one > other ? one : other);

function row({ ranks, instant, parts }, most, device) {
	const total = einsum.sum(parts),
		fits = total <= device.memory;
	const share = part => numbers.decimals(part, most, 5);
	const words = parts.map((part, at) => `${PARTS[at][1]} ${numbers.binary(part)}`).join(", ");
	return h(
		"div.bar",
		h(
			"p",
			h("strong", ranks === 1 ? "one card" : `each of ${ranks}`),
			` · ${instant}`,
			h(
				"span",
				numbers.binary(total),
				" ",
				h(fits ? "span.free" : "span.over", fits ? `fits ${device.name}` : `too large for ${device.name}`),
			),
		),
		h(
			"div.stack",
			{ role: "img", "aria-label": words },
			parts.map((part, at) =>
				part > 0n
					? h(
							`span.${PARTS[at][0]}`,
							{ "--share": share(part), title: `${PARTS[at][1]}: ${numbers.binary(part)}` },
							Number(share(part)) > 0.06 ? h("b", numbers.binary(part)) : null,
						)
					: null,
			),
			h("span.room", { "--share": share(most - total) }),
		),
	);
}
