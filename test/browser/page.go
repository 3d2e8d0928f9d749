// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package browser drives Debian's Chromium through stories on a page, and holds the page to what
// must not be: errors on the console, violations of its policy, requests to others.
package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/kubedevice/kubedevice/test/binaries"
)

// limit is how long a page may take to show something; a story takes seconds on a quiet machine.
const limit = time.Minute

// Build fetches the browser where it is not there yet, with what else is below the directory of the
// checkout, and returns its program.
func Build(ctx context.Context, root string) (program string, err error) {
	programs := filepath.Join(root, "_output", "cluster", "bin")
	return filepath.Join(programs, binaries.ChromiumProgram),
		binaries.BuildChromium(ctx, filepath.Join(root, "test"), programs, os.Stderr)
}

// Page is a page in a browser of its own. Its methods end the test when they fail.
type Page struct {
	// Base is the address of the page's directory: what is not below it are others.
	Base string

	t   *testing.T
	ctx context.Context

	mu    sync.Mutex
	wrong []string // errors on the console, violations of the policy, requests to others
}

// Open opens an address in a browser, in a window of this size in CSS pixels. The test fails at its
// end if the page did what it must not.
func Open(ctx context.Context, t *testing.T, program, url string, width, height int64) *Page {
	t.Helper()
	base, _, _ := strings.Cut(url, "#")
	base, _, _ = strings.Cut(base, "?")
	p := &Page{Base: base[:strings.LastIndex(base, "/")+1], t: t}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-domain-reliability", true), chromedp.WSURLReadTimeout(limit))
	allocated, stop := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	var cancel context.CancelFunc
	p.ctx, cancel = chromedp.NewContext(allocated)
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, text := range p.wrong {
			t.Errorf("the browser reports: %s", text)
		}
		cancel()
	})
	if err := chromedp.Listen(p.ctx, p.listen); err != nil { // it starts the browser
		t.Fatal(err)
	}
	p.Do("open the page", command(log.Enable, cdp.Empty{}), command(network.Enable, network.EnableParams{}),
		chromedp.EmulateViewport(width, height, chromedp.EmulateScale(1.25)), chromedp.Navigate(url))
	return p
}

// command returns an action that is one command of the protocol.
func command[P, R any](of cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, of, params)
		return err
	})
}

// listen keeps what must not be.
func (p *Page) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		p.wrong = append(p.wrong, fmt.Sprintf("%+v", event.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		if event.Type == runtime.ConsoleAPICalledTypeError || event.Type == runtime.ConsoleAPICalledTypeWarning {
			var said []string
			for _, arg := range event.Args {
				said = append(said, string(arg.Value)+arg.Description)
			}
			p.wrong = append(p.wrong, strings.Join(said, " "))
		}
	case *log.EventEntryAdded:
		if event.Entry.Level == log.EntryLevelError || event.Entry.Level == log.EntryLevelWarning {
			p.wrong = append(p.wrong, event.Entry.Text+" "+event.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		if url := event.Request.URL; !strings.HasPrefix(url, p.Base) {
			p.wrong = append(p.wrong, "a request to "+url)
		}
	}
}

// Do runs actions of chromedp.
func (p *Page) Do(what string, actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}

// Value returns what an expression in JavaScript, or the promise that it is, comes to.
func Value[T any](p *Page, expression string) T {
	p.t.Helper()
	result, err := evaluate[T](p, expression)
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return result
}

func evaluate[T any](p *Page, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// MainThread returns for how long the page's main thread has had a CPU so far.
func (p *Page) MainThread() time.Duration {
	p.t.Helper()
	p.Do("count the main thread's time", command(performance.Enable, performance.EnableParams{
		TimeDomain: performance.EnableTimeDomainThreadTicks,
	}))
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	found, err := chromedp.Run(ctx,
		func(ctx context.Context, target *chromedp.Target) (performance.GetMetricsResult, error) {
			return cdp.Call(ctx, target, performance.GetMetrics, cdp.Empty{})
		})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, metric := range found.Metrics {
		if metric.Name == "TaskDuration" {
			return time.Duration(metric.Value * float64(time.Second))
		}
	}
	p.t.Fatal("the browser does not report the main thread's time")
	return 0
}

// Await waits until a condition in JavaScript holds, on this page or on the next.
func (p *Page) Await(what, condition string) {
	p.t.Helper()
	for end := time.Now().Add(limit); !p.holds(condition); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("%s: after %v the page shows\n%.3000s", what, limit, Value[string](p, "document.body.innerText"))
		}
	}
}

// serverError is the protocol's code of a command that the next page interrupts.
const serverError = -32000

// holds reports whether a condition holds. While the next page comes, none does.
func (p *Page) holds(condition string) bool {
	p.t.Helper()
	holds, err := evaluate[bool](p, "Boolean("+condition+")")
	var interrupted *cdproto.Error
	if errors.As(err, &interrupted) && interrupted.Code == serverError {
		return false
	}
	if err != nil {
		p.t.Fatalf("%s: %v", condition, err)
	}
	return holds
}

// Click clicks on what an expression finds.
func (p *Page) Click(expression string) {
	p.t.Helper()
	p.Do("click on "+expression, chromedp.Evaluate[chromedp.Void](expression+".click()"))
}

// Shortcut returns the action that presses a key which the page handles: a browser types no letter
// then.
func Shortcut(key string) chromedp.Action[chromedp.Void] {
	return command(input.DispatchKeyEvent, input.DispatchKeyEventParams{
		Type: input.DispatchKeyEventTypeRawKeyDown, Key: key,
	})
}

// Picture writes a picture into a file, NAME.png, and one in the dark, NAME-dark.png.
func (p *Page) Picture(name string) {
	p.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		p.Do("choose colours", Scheme(scheme), chromedp.Sleep(500*time.Millisecond)) // colours change slowly
		ctx, cancel := context.WithTimeout(p.ctx, limit)
		image, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		cancel()
		file := name + map[string]string{"dark": "-dark"}[scheme] + ".png"
		if err := errors.Join(err, os.WriteFile(file, image, 0o644)); err != nil {
			p.t.Fatal(err)
		}
	}
	p.Do("be light again", Scheme("light"))
}

// Scheme returns the action that makes the system light or dark.
func Scheme(scheme string) chromedp.Action[chromedp.Void] {
	return command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}
