// What survives a new drawing: the focus, and the knobs themselves, one of which may be dragged just now.

// The element that has the focus, by what survives a new drawing; and the same element afterwards.
export function focused() {
	const element = document.activeElement;
	if (!element || element === document.body) return null;
	if (element.id) return { selector: `#${CSS.escape(element.id)}`, at: element.selectionStart ?? null };
	const [name, value] = Object.entries(element.dataset)[0] ?? [];
	return name ? { selector: `[data-${name}="${CSS.escape(value)}"]`, at: null } : null;
}

export function refocused(held) {
	if (!held) return;
	const element = document.querySelector(held.selector);
	if (!element || element === document.activeElement) return;
	element.focus({ preventScroll: true });
	if (held.at !== null && element.type === "text") element.setSelectionRange(held.at, held.at);
}

// Make an element what a fresh one is and keep it in its place: a slider that was replaced could not be dragged on.
export function renewed(old, fresh) {
	if (old.nodeType === Node.TEXT_NODE) {
		if (old.data !== fresh.data) old.data = fresh.data;
		return;
	}
	for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
	for (const { name } of [...old.attributes])
		if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
	const olds = [...old.childNodes];
	[...fresh.childNodes].forEach((child, index) => {
		if (index >= olds.length) old.append(child);
		else if (alike(olds[index], child)) renewed(olds[index], child);
		else olds[index].replaceWith(child);
	});
	for (const rest of olds.slice(fresh.childNodes.length)) rest.remove();
	if (/^(input|select)$/i.test(old.nodeName)) {
		if (old.value !== fresh.value) old.value = fresh.value;
		old.checked = fresh.checked;
	}
}

// Sliders of other stops are other sliders.
function alike(old, fresh) {
	const same = old.nodeName === fresh.nodeName && old.id === fresh.id;
	return same && (old.nodeType !== Node.ELEMENT_NODE || old.getAttribute("max") === fresh.getAttribute("max"));
}
