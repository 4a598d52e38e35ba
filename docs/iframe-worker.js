// Browsers start no worker for pages that are opened as files. There the site's search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inside = frame.contentWindow
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = inside.document.createElement("script")
      const loaded = new Promise(resolve => { script.onload = resolve })
      script.src = url
      inside.document.body.append(script)
      this.terminate = () => frame.remove()
      this.postMessage = data => loaded.then(() => inside.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
