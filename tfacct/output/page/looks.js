// Light or dark, and letters that are marked where they are pointed at.

const DARK = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;

// The theme is the system's until the button says otherwise.
export function followed() {
	root.dataset.theme = DARK.matches ? "dark" : "light";
	DARK.addEventListener("change", followed, { once: true });
}

export function turned() {
	root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
}

// One letter, one meaning: where a letter is pointed at, it is marked everywhere.
export function marked(event) {
	const axis = event.target.closest?.("[data-axis]")?.dataset.axis;
	for (const element of document.querySelectorAll("[data-axis]")) {
		element.classList.toggle("lit", axis !== undefined && element.dataset.axis === axis);
	}
}
