// Peak memory of a training step, on one GPU and with FSDP. It is computed in Python: as polynomials in batch and
// context for every phase that can be the peak, or as the numbers of one step.

import * as einsum from "./einsum.js";
import * as numbers from "./numbers.js";
import * as count from "./count.js";
import * as report from "./report.js";
import * as dom from "./dom.js";

const { h } = dom;
const TITLE = "Memory of a training step";
const PARTS = [
	["mlp", "weights"],
	["mtp", "optimizer state"],
	["head", "gradients"],
	["attention", "saved activations"],
	["embed", "temporary memory"],
	["encoder", "gathered parameters"],
];

export function training(counted, device) {
	const { model } = counted,
		found = model.training;
	if (!found) return null;
	if (found.why) return refused(`Not supported: ${found.why}.`);
	const { steps, context, source, batch, dtype } = found.laws ? fromLaws(counted, found.laws) : still(found);
	const options = ["--ctx", context, ...(batch > 1n ? ["--batch", batch] : [])];
	if (dtype !== "bf16") options.push("--dtype", dtype);
	if (!steps) {
		const command = report.typed("train", model, options);
		return refused("Not supported here at this length; use ", h("code", command), ".");
	}
	if (context > counted.limit)
		return refused(`A context of ${numbers.grouped(context)} is longer than the position embedding.`);
	const sequences = batch === 1n ? "One sequence" : `${numbers.grouped(batch)} sequences`;
	const configured = found.laws && !changed(counted) ? "" : "For the model as configured. ";
	const read = source ? `, with a source of ${numbers.grouped(source)},` : "";
	const aside = `${configured}${sequences} of ${numbers.grouped(context)} tokens${read} per GPU, ${dtype} with AdamW.`;
	const most = steps.reduce((best, step) => larger(best, einsum.sum(step.parts)), device.training);
	const used = PARTS.filter((_, at) => steps.some(step => step.parts[at] > 0n));
	const last = steps.at(-1).ranks;
	const command = report.typed("train", model, last > 1 ? [...options, "--fsdp", last] : options);
	return dom.panel(
		"training",
		TITLE,
		aside,
		h("div.bars", steps.map(step => row(step, most, device))),
		dom.key(used),
		h(
			"p.note",
			last > 1 ? "FSDP shards weights, gradients and optimizer state, not saved activations. " : "",
			h("code", command),
			" lists the phases.",
		),
	);
}

const refused = (...parts) => dom.panel("training", TITLE, null, h("p.note", ...parts));
const larger = (one, other) => (one > other ? one : other);
const changed = ({ model, state }) => state.form !== null || Object.keys(count.changed(model, state)).length > 0;

// Numbers of one step, which no knob changes.
function still({ context, source, steps }) {
	const found = steps.map(([ranks, exact, phase, ...parts]) => ({ ranks, exact, phase, parts: parts.map(BigInt) }));
	return { steps: found, context, source, batch: 1n, dtype: "bf16" };
}

// The step at these knobs: its laws are those of steps that are laid out alike. A step trains on a whole context.
function fromLaws({ at, state }, laws) {
	const wanted = count.activations(state.dtype ?? "bf16"),
		width = wanted === "fp32" && laws.some(law => law.dtype === "fp32") ? "fp32" : "bf16";
	const dtype = wanted === "fp16" ? "fp16" : width;
	const law = laws.find(one => one.dtype === width && within(one.of.map(BigInt), at.B, at.S));
	return { steps: law?.ranks.map(rank => peak(rank, at.B, at.S)), context: at.S, batch: at.B, dtype };
}

function within([batch, first, last], B, S) {
	return (batch === 1n) === (B === 1n) && S >= first && (last === 0n || S <= last);
}

// The phase that decides, the first of those with the most bytes.
function peak({ ranks, exact_every, exact_from, sent, always, phases }, B, S) {
	const powers = [1n, B * S, S, B, B * S * S, S * S];
	const value = law => einsum.sum(law.map((each, at) => BigInt(each) * powers[at]));
	const exact = S >= exact_from && exact_every > 0 && S % BigInt(exact_every) === 0n;
	const found = phases.map(([phase, ...laws]) => ({
		ranks,
		exact,
		sent,
		phase,
		parts: [...always, ...laws].map(value),
	}));
	return found.reduce((best, one) => (einsum.sum(one.parts) > einsum.sum(best.parts) ? one : best));
}

function row({ ranks, exact, sent, phase, parts }, most, device) {
	const total = einsum.sum(parts),
		fits = total <= device.training,
		near = exact ? "" : "≈ ";
	const share = part => numbers.decimals(part, most, 5);
	const words = parts.map((part, at) => `${PARTS[at][1]} ${numbers.binary(part)}`).join(", ");
	return h(
		"div.bar",
		h(
			"p",
			h("strong", ranks === 1 ? "1 GPU" : `each of ${ranks} GPUs`),
			` · ${phase}${sent ? ` · sends ${numbers.binary(BigInt(sent))}` : ""}`,
			h(
				"span",
				h("b", { title: `${near}${numbers.grouped(total)}` }, `${near}${numbers.binary(total)}`),
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
