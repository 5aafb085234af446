// From a file no browser starts a worker, so the search of the site runs in a hidden frame there.
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      inside.importScripts = (...urls) =>
        urls.reduce((before, url) => before.then(() => this.load(url)), Promise.resolve());
      this.ready = this.load(url);
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.frame.contentDocument.createElement("script");
        Object.assign(script, { src: url, onload: resolve, onerror: reject });
        this.frame.contentDocument.body.appendChild(script);
      });
    }

    postMessage(data) {
      this.ready = this.ready.then(() =>
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })),
      );
    }

    terminate() {
      this.frame.remove();
    }
  }
  window.IFrameWorker = window.Worker = IFrameWorker;
}
