// Light or dark, and letters that are marked where they are pointed at.

const DARK = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;

// The theme is the system's until the button says otherwise.
export function turned() {
	const now = root.dataset.theme ?? (DARK.matches ? "dark" : "light");
	root.dataset.theme = now === "dark" ? "light" : "dark";
}

// One letter, one meaning: where a letter is pointed at, it is marked everywhere.
export function marked(event) {
	const axis = event.target.closest?.("[data-axis]")?.dataset.axis;
	for (const element of document.querySelectorAll("[data-axis]")) {
		element.classList.toggle("lit", axis !== undefined && element.dataset.axis === axis);
	}
}
