// Light or dark; and the axis under the pointer, marked everywhere.

const DARK = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;

// The system's theme until the button is used.
export function toggle() {
	const now = root.dataset.theme ?? (DARK.matches ? "dark" : "light");
	root.dataset.theme = now === "dark" ? "light" : "dark";
}

// Marks the axis under the pointer wherever it occurs.
export function marked(event) {
	const axis = event.target.closest?.("[data-axis]")?.dataset.axis;
	for (const element of document.querySelectorAll("[data-axis]")) {
		element.classList.toggle("lit", axis !== undefined && element.dataset.axis === axis);
	}
}
