// The data that stands in the page, deflated and in base64, as the values that it was made from.

// Null where the browser has no means to unpack it.
export async function read(text) {
	if (!("DecompressionStream" in globalThis)) return null;
	const unpacking = new DecompressionStream("deflate-raw"),
		writer = unpacking.writable.getWriter();
	writer.write(Uint8Array.from(atob(text), letter => letter.charCodeAt(0)));
	writer.close();
	return new Response(unpacking.readable).json();
}
