// Command picture saves a picture of a page of the dashboard, as Chromium shows it. docs/dashboard.png shows the middle
// of a run of the quickstart:
//
//	go run ./examples/quickstart -messages 60000 -kill-every 3s -dashboard 127.0.0.1:7070
//	cd internal/test/system/browser && go run ./picture http://127.0.0.1:7070/ ../../../../docs/dashboard.png
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: picture ADDRESS FILE.png")
		os.Exit(2)
	}
	if err := save(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func save(address, file string) error {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		return fmt.Errorf("%w; install it with: apt-get install -y --no-install-recommends chromium", err)
	}
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute) //nolint:forbidigo // the program's own
	defer stop()
	ctx, end := chromedp.NewContext(ctx, chromedp.WithAllocatorOptions(chromedp.ExecPath(chromium), chromedp.NoSandbox,
		chromedp.DisableGPU,
		chromedp.Flag("disable-background-networking", true)))
	defer end()
	if err := chromedp.Do(ctx); err != nil { // starts Chromium
		return err
	}
	size := emulation.SetDeviceMetricsOverrideParams{Width: 1100, Height: 640, DeviceScaleFactor: 1}
	if _, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, size); err != nil {
		return err
	}
	if err := chromedp.Do(ctx, chromedp.Navigate(address), chromedp.WaitReady(chromedp.CSS("#main"))); err != nil {
		return err
	}
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		return err
	}
	return os.WriteFile(file, png, 0o644)
}
