// Keeps the focus, and the knob that is being dragged, when panels are drawn again.

// The focused element as a selector that also finds it in the next drawing.
export function focused() {
	const element = document.activeElement;
	if (!element || element === document.body) return null;
	if (element.id) return { selector: `#${CSS.escape(element.id)}`, at: element.selectionStart ?? null };
	const [name, value] = Object.entries(element.dataset)[0] ?? [];
	return name ? { selector: `[data-${name}="${CSS.escape(value)}"]`, at: null } : null;
}

export function refocused(before) {
	if (!before) return;
	const element = document.querySelector(before.selector);
	if (!element || element === document.activeElement) return;
	element.focus({ preventScroll: true });
	if (before.at !== null && element.type === "text") element.setSelectionRange(before.at, before.at);
}

// Update an element in place: a slider that was replaced could not be dragged further.
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

// Sliders with different stops are different sliders.
function alike(old, fresh) {
	const same = old.nodeName === fresh.nodeName && old.id === fresh.id;
	return same && (old.nodeType !== Node.ELEMENT_NODE || old.getAttribute("max") === fresh.getAttribute("max"));
}
