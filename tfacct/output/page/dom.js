// Elements, made one by one. No text is ever parsed as HTML, so a model's name stays text whatever it contains.

const SVG = "http://www.w3.org/2000/svg",
	MATHML = "http://www.w3.org/1998/Math/MathML";

// `h("td.number", { title: "…" }, "8.03 B")`: a tag with classes, attributes if there are any, and children.
export function h(tag, ...rest) {
	return made(document.createElement(tag.split(".")[0]), tag, rest);
}

export function svg(tag, ...rest) {
	return made(document.createElementNS(SVG, tag.split(".")[0]), tag, rest);
}

export function math(tag, ...rest) {
	return made(document.createElementNS(MATHML, tag.split(".")[0]), tag, rest);
}

function made(element, tag, rest) {
	const [first] = rest,
		attributes = Object.getPrototypeOf(first ?? "") === Object.prototype ? first : null;
	const classes = tag.split(".").slice(1);
	if (classes.length) element.setAttribute("class", classes.join(" "));
	for (const [name, value] of Object.entries(attributes ?? {})) {
		if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
		else if (name.startsWith("--")) element.style.setProperty(name, value);
		else if (value === true) element.setAttribute(name, "");
		else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
	}
	const children = attributes ? rest.slice(1) : rest;
	element.append(...children.flat(3).filter(child => child !== null && child !== undefined && child !== false));
	return element;
}

export const byId = id => document.getElementById(id);

// A section with a heading. Its body is drawn again whenever a knob changes.
export function panel(id, title, aside, ...body) {
	const heading = `${id}-title`;
	return h(
		"section.panel",
		{ id, "aria-labelledby": heading },
		h("header", h("h2", { id: heading }, title), aside ? h("p.aside", aside) : null),
		...body,
	);
}

// A table whose first cell of each row names it.
export function table(caption, columns, rows) {
	const head = columns.map(([label, kind]) => h(`th${kind ? `.${kind}` : ""}`, { scope: "col" }, label));
	return h(
		"div.wide",
		{ tabindex: 0, role: "group", "aria-label": caption },
		h(
			"table",
			h("caption.hidden", caption),
			h("thead", h("tr", head)),
			h("tbody", rows.map(row => tableRow(columns, row))),
		),
	);
}

function tableRow(columns, { cells, ...attributes }) {
	return h(
		"tr",
		attributes,
		cells.map((cell, index) => {
			const kind = columns[index][1];
			return index === 0 ? h("th", { scope: "row" }, cell) : h(`td${kind ? `.${kind}` : ""}`, null, cell);
		}),
	);
}

// A swatch and a word for each colour of a picture.
export function key(entries) {
	return h(
		"ul.key",
		entries.map(([hue, text]) => h("li", h(`i.swatch.${hue}`), text)),
	);
}
