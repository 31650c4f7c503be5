// Types of the used part of uPlot.
export default class uPlot {
  constructor(options: any, data: any, parent: HTMLElement);
  setData(data: any): void;
  setSize(size: { width: number; height: number }): void;
  destroy(): void;
}
