// Shows the value under the pointer or the keyboard's place, and switches axes to a logarithmic scale. The page is complete without it.
"use strict";
(() => {
  const LEFT = 56, RIGHT = 390, TOP = 12;
  const NS = "http://www.w3.org/2000/svg";
  const number = (value) => Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3) ? value.toExponential(2) : String(Number(value.toPrecision(4)));

  // An axis of data-axes: [low, high, log, name, whole, labelled]
  const share = ([low, high, log], value) => log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  const value = ([low, high, log], part) => log ? low * Math.pow(high / low, part) : low + part * (high - low);

  // The corners of a path, in hundredths of a pixel, and whether each is drawn to from the one before
  function corners(d) {
    const found = [];
    let x = 0, y = 0, command = "m";
    const words = d.match(/[mlhvz]|-?\d+/g) || [];
    for (let i = 0; i < words.length;) {
      if (/[mlhvz]/.test(words[i])) command = words[i++];
      if (command === "z") continue;
      if (command === "h") { const dx = Number(words[i++]); x += dx; if (!dx) continue; } else if (command === "v") y += Number(words[i++]);
      else { x += Number(words[i++]); y += Number(words[i++]); }
      found.push({ x, y, move: command === "m" });
    }
    return found;
  }

  function roundValues([low, high, log]) {
    const found = [];
    if (log) {
      const width = Math.log10(high / low), steps = width > 3 ? [1] : width > 1.7 ? [1, 3] : [1, 2, 5];
      for (let d = Math.floor(Math.log10(low)); d <= Math.ceil(Math.log10(high)); d++) for (const s of steps) found.push(s * 10 ** d);
    } else {
      const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map((s) => s * power).find((s) => s >= rough * 0.999);
      for (let v = Math.ceil(low / step); v * step <= high; v++) found.push(v * step);
    }
    return found.filter((v) => v >= low && v <= high);
  }

  class Plot {
    constructor(figure, svg) {
      this.svg = svg;
      this.axes = JSON.parse(svg.dataset.axes);
      this.bottom = svg.viewBox.baseVal.height - 44;
      this.inner = svg.querySelector("svg");
      this.read();
      if (this.axes.toggle) svg.before(this.button()); // absolutely placed, at the right of the question
      if (!this.samples.length) return;
      this.output = document.createElement("output");
      this.output.setAttribute("aria-live", "polite");
      svg.after(this.output);
      this.spot = document.createElementNS(NS, "circle");
      this.spot.setAttribute("class", "spot");
      this.spot.setAttribute("r", "5");
      svg.tabIndex = 0;
      svg.addEventListener("pointermove", (event) => this.nearest(event));
      svg.addEventListener("pointerdown", (event) => this.nearest(event));
      svg.addEventListener("pointerleave", () => this.forget());
      svg.addEventListener("focus", () => this.show(this.at ?? 0));
      svg.addEventListener("blur", () => this.forget());
      svg.addEventListener("keydown", (event) => this.key(event));
    }

    read() {
      this.paths = [...this.inner.querySelectorAll("path")].map((path) => ({ path, corners: corners(path.getAttribute("d")) }));
      const marks = this.paths.filter(({ path }) => path.matches(".dots, .line:not(.guide, .bar, .ink, .whisker)"));
      this.samples = marks.flatMap((mark) => mark.corners.map((corner) => ({ ...corner, x: corner.x / 100, y: corner.y / 100 })));
      this.samples = this.samples.filter((s) => s.x >= LEFT - 1 && s.x <= RIGHT + 1 && s.y >= TOP - 1 && s.y <= this.bottom + 1);
    }

    data(name, corner) {
      const part = name === "x" ? (corner.x - LEFT) / (RIGHT - LEFT) : (this.bottom - corner.y) / (this.bottom - TOP);
      const found = value(this.axes[name], part);
      return this.axes[name][4] ? Math.round(found) : found;
    }

    nearest(event) {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.svg.getScreenCTM().inverse());
      let best = 0, least = Infinity;
      this.samples.forEach((s, i) => { const far = (s.x - point.x) ** 2 + (s.y - point.y) ** 2; if (far < least) { least = far; best = i; } });
      this.show(best);
    }

    key(event) {
      const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20, Home: -1e9, End: 1e9 }[event.key];
      if (!step) return;
      event.preventDefault();
      this.show(Math.min(this.samples.length - 1, Math.max(0, (this.at ?? 0) + step)));
    }

    show(place) {
      const sample = this.samples[place];
      if (!sample) return;
      this.at = place;
      this.spot.setAttribute("cx", sample.x);
      this.spot.setAttribute("cy", sample.y);
      this.svg.append(this.spot);
      const { x, y } = this.axes;
      this.output.textContent = `${x[3]}: ${number(this.data("x", sample))}, ${y[3]}: ${number(this.data("y", sample))}`;
    }

    forget() { this.spot.remove(); this.output.textContent = ""; }

    button() {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "log scale";
      const name = this.axes.toggle;
      button.setAttribute("aria-pressed", String(Boolean(this.axes[name][2])));
      button.addEventListener("click", () => {
        this.rescale(name);
        button.setAttribute("aria-pressed", String(Boolean(this.axes[name][2])));
      });
      return button;
    }

    // Draw everything again with the other scale on one axis, over the range of what is there
    rescale(name) {
      const old = this.axes[name], log = old[2] ? 0 : 1, all = [];
      for (const mark of this.paths) for (const c of mark.corners) {
        c.value = this.raw(name, c);
        if (mark.path.matches(".dots, .line:not(.guide)")) all.push(c.value);
      }
      const positive = all.filter((v) => v > 0), low = Math.min(...(log ? positive : all)), high = Math.max(...all);
      if (!(high > low)) return;
      const edge = log ? (high / low) ** 0.04 : 0.04 * (high - low);
      this.axes[name] = [log ? low / edge : low - edge, log ? high * edge : high + edge, log, ...old.slice(3)];
      for (const { path, corners: them } of this.paths) {
        for (const c of them) c[name] = Math.round(100 * this.place(name, log ? Math.max(c.value, this.axes[name][0]) : c.value));
        const dots = path.matches(".dots");
        path.setAttribute("d", them.map((c) => `${c.move ? "M" : "L"}${c.x} ${c.y}${dots ? "h0" : ""}`).join(""));
      }
      this.samples = [];
      const marks = this.paths.filter(({ path }) => path.matches(".dots, .line:not(.guide, .bar, .ink, .whisker)"));
      this.samples = marks.flatMap((mark) => mark.corners.map((c) => ({ x: c.x / 100, y: c.y / 100 })));
      this.svg.querySelectorAll(":scope > text:not(.name)").forEach((text) => { if (/above$/.test(text.textContent)) text.remove(); });
      this.ticks(name);
      this.spot?.remove();
    }

    raw(name, c) {
      const part = name === "x" ? (c.x / 100 - LEFT) / (RIGHT - LEFT) : (this.bottom - c.y / 100) / (this.bottom - TOP);
      return value(this.axes[name], part);
    }

    place(name, v) {
      const part = share(this.axes[name], v);
      return name === "x" ? LEFT + part * (RIGHT - LEFT) : this.bottom - part * (this.bottom - TOP);
    }

    ticks(name) {
      const group = this.svg.querySelector(`.ticks.${name}`);
      group.replaceChildren();
      for (const v of roundValues(this.axes[name])) {
        const at = this.place(name, v), line = document.createElementNS(NS, "path"), text = document.createElementNS(NS, "text");
        line.setAttribute("d", name === "x" ? `M${at} ${TOP}V${this.bottom}` : `M${LEFT} ${at}H${RIGHT}`);
        text.setAttribute("x", name === "x" ? at : LEFT - 5);
        text.setAttribute("y", name === "x" ? this.bottom + 15 : at + 4);
        text.textContent = number(v);
        group.append(line, text);
      }
    }
  }

  for (const figure of document.querySelectorAll("figure")) {
    const svg = figure.querySelector("svg.plot");
    if (svg) new Plot(figure, svg);
  }
  addEventListener("beforeprint", () => document.querySelectorAll("details.series").forEach((details) => { details.open = true; }));
})();
