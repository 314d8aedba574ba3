/* hover.js -- a rule through a chart of lines, and the values of those that are there beside it. */
"use strict";
(() => {
	const tip = document.getElementById("tip");

	const nearest = (points, at) => points.reduce(
		(best, point) => Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best);

	const show = (chart, lines, event) => {
		const box = chart.getBoundingClientRect();
		const at = (event.clientX - box.left) / box.width * chart.viewBox.baseVal.width;
		const all = lines.map(line => [line, nearest(line.points, at)]);
		const best = nearest(all.map(pair => pair[1]), at);
		const near = all.filter(pair => Math.abs(pair[1][0] - best[0]) < 25);
		const rule = chart.querySelector(".rule");
		rule.style.transform = `translateX(${best[0]}px)`;
		rule.style.visibility = "visible";
		tip.replaceChildren();
		for (const [line, point] of near) {
			const row = document.createElement("div");
			const swatch = document.createElement("span");
			swatch.className = `swatch ${line.colour}`;
			row.append(swatch, `${line.label}: ${point[3]} at ${point[2]}`);
			tip.append(row);
		}
		tip.style.display = "block";
		const wide = document.documentElement.clientWidth - tip.offsetWidth - 8;
		const high = document.documentElement.clientHeight - tip.offsetHeight - 8;
		tip.style.left = `${Math.max(4, Math.min(event.clientX + 16, wide)) + scrollX}px`;
		tip.style.top = `${Math.max(4, Math.min(event.clientY + 16, high)) + scrollY}px`;
	};

	for (const chart of document.querySelectorAll("svg.chart")) {
		const lines = [...chart.querySelectorAll(".series")].map(group => ({
			label: group.dataset.label,
			colour: group.classList[1],
			points: JSON.parse(group.dataset.points),
		}));
		chart.addEventListener("pointermove", event => show(chart, lines, event));
		chart.addEventListener("pointerleave", () => {
			tip.style.display = "none";
			chart.querySelector(".rule").style.visibility = "hidden";
		});
	}
})();
