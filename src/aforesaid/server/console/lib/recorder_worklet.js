// Runs on the audio thread: collect a tenth of a second and hand it over as 16-bit samples.

const SIZE = 1600;

class Recorder extends AudioWorkletProcessor {
  constructor() {
    super();
    this.buffer = new Int16Array(SIZE);
    this.length = 0;
    this.peak = 0;
  }

  /** @param {Float32Array[][]} inputs */
  process(inputs) {
    for (const value of inputs[0]?.[0] ?? []) {
      const clipped = Math.max(-1, Math.min(1, value));
      this.peak = Math.max(this.peak, Math.abs(clipped));
      this.buffer[this.length] = clipped * 0x7fff;
      this.length += 1;
      if (this.length === SIZE) this.flush();
    }
    return true;
  }

  flush() {
    const samples = this.buffer.buffer.slice(0);
    this.port.postMessage({ samples, level: this.peak }, [samples]);
    this.length = 0;
    this.peak = 0;
  }
}

registerProcessor("recorder", Recorder);
