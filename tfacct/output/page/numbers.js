// Numbers as people read them, and as they type them. Twin of base/units.py: the same text to the last digit.

const SI = ["", "K", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q"];
const PEOPLE = ["", "K", "M", "B", "T", "Q"];
const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"];
const DECIMAL = ["B", "KB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"];

// Digits in groups of three: 8,030,261,248.
export function grouped(value) {
	return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

// A quotient as a whole number, a half to the even one.
export function rounded(part, whole) {
	const quotient = part / whole,
		rest = part % whole;
	const up = 2n * rest > whole || (2n * rest === whole && quotient % 2n === 1n);
	return up ? quotient + 1n : quotient;
}

// part / whole with this many decimals, exact.
export function decimals(part, whole, places) {
	const negative = part < 0n !== whole < 0n && part !== 0n;
	const digits = rounded(abs(part) * 10n ** BigInt(places), abs(whole));
	const text = String(digits).padStart(places + 1, "0");
	const cut = text.length - places;
	return `${negative && digits ? "-" : ""}${text.slice(0, cut)}${places ? `.${text.slice(cut)}` : ""}`;
}

function abs(value) {
	return value < 0n ? -value : value;
}

// Three significant digits, in the largest unit that leaves at least 1 before the point.
function scaled(value, base, names) {
	if (value < 0n) return `-${scaled(-value, base, names)}`;
	if (value < base) return `${grouped(value)} ${names[0]}`.trim();
	let step = 1;
	while (step + 1 < names.length && value >= base ** BigInt(step + 1)) step += 1;
	const unit = base ** BigInt(step),
		last = step + 1 === names.length;
	for (const [places, limit] of [
		[2, 10n],
		[1, 100n],
		[0, 1000n],
	]) {
		const power = 10n ** BigInt(places),
			digits = rounded(value * power, unit);
		if (digits < limit * power || (places === 0 && last)) {
			const part = places ? `.${String(digits % power).padStart(places, "0")}` : "";
			return `${grouped(digits / power)}${part} ${names[step]}`;
		}
	}
	// What rounds up to 1,000, and 1,000 to 1,023 of a binary unit, is written in the next one.
	const next = base * unit;
	return 10000n * value < 9995n * next ? `${decimals(value, next, 3)} ${names[step + 1]}` : `1.00 ${names[step + 1]}`;
}

export const si = value => scaled(value, 1000n, SI);
export const people = value => scaled(value, 1000n, PEOPLE);
export const binary = value => scaled(value, 1024n, BINARY);
export const decimal = value => scaled(value, 1000n, DECIMAL);

export function percent(part, whole, places = 1) {
	return `${decimals(part * 100n, whole, places)}%`;
}

// New over old: a percentage, or a factor if that is clearer.
export function change(now, then) {
	if (now === then) return "unchanged";
	if (now === 0n) return "gone";
	if (now >= 2n * then) return `× ${factor(now, then)}`;
	if (10n * now <= then || (now < then && then % now === 0n)) return `÷ ${factor(then, now)}`;
	const difference = abs(now - then);
	const places = [1, 2, 3].find(some => difference * 100n * 10n ** BigInt(some) >= then) ?? 4;
	return `${now > then ? "+" : "−"}${percent(difference, then, places)}`;
}

function factor(part, whole) {
	if (part % whole === 0n || part >= 1000n * whole) return grouped(rounded(part, whole));
	return decimals(part, whole, part < 10n * whole ? 2 : part < 100n * whole ? 1 : 0);
}

// Tokens as a user writes them: `16k` is 16,384, `1e6` a million. Null for anything else.
export function readTokens(text) {
	const scientific = /^\s*(\d{1,12})(?:\.(\d{1,12}))?e\+?(\d{1,2})\s*$/i.exec(text);
	if (scientific) return inTens(scientific[1], scientific[2] ?? "", Number(scientific[3]));
	const match = /^\s*(\d{1,3}(?:,\d{3})+|\d[\d_]*)(k|m)?\s*$/i.exec(text);
	const digits = match?.[1].replace(/[,_]/g, "");
	if (!digits || digits.length > 18) return null;
	return BigInt(digits) << BigInt(10 * " km".indexOf((match[2] ?? " ").toLowerCase()));
}

function inTens(whole, part, exponent) {
	const digits = (whole + part).replace(/0+$/, ""),
		places = part.length - ((whole + part).length - digits.length);
	if (places > exponent) return null;
	const value = BigInt(digits || "0") * 10n ** BigInt(exponent - places);
	return value < 10n ** 18n ? value : null;
}
