// Stops of the sliders: numbers that are read at a glance.

const STOPS = 4; // of the context's slider, an octave

export const distance = (one, other) => Math.abs(Math.log(Number(one)) - Math.log(Number(other)));

// Stops of a context: four an octave, from 128 to eight times what the model was trained for.
export function octaves(model, now) {
	const most = Math.max(model.context * 8, Number(now), 4096),
		found = new Set();
	for (let at = 7 * STOPS; 2 ** (at / STOPS) <= most; at += 1) found.add(stop(2 ** (at / STOPS)));
	return [...found.add(BigInt(model.context))].sort((one, other) => (one < other ? -1 : 1));
}

// Stops between powers of two are multiples of an eighth of the power below, so they are read at a glance.
function stop(size) {
	const below = 2 ** Math.floor(Math.log2(size) + 1e-9);
	return BigInt(Math.round(size / (below / 4)) * (below / 4));
}

export function powers(most) {
	const found = [];
	for (let value = 1n; value <= most; value *= 2n) found.push(value);
	return found;
}
