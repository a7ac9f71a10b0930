// Reads the data of the page, which is deflated and in base64.

// Null if the browser cannot unpack it.
export async function read(text) {
	if (!("DecompressionStream" in globalThis)) return null;
	const unpacking = new DecompressionStream("deflate-raw"),
		writer = unpacking.writable.getWriter();
	writer.write(Uint8Array.from(atob(text), letter => letter.charCodeAt(0)));
	writer.close();
	return new Response(unpacking.readable).json();
}
