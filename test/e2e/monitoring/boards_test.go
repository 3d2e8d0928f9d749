// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/browser"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

var pictures = flag.Bool("pictures", false, "take the pictures of the boards for the documents")

// board is a board of Grafana, of which only what the tests need is read.
type board struct {
	Title  string
	Panels []struct {
		ID      int
		Title   string
		Type    string
		GridPos struct{ Y, H int64 }
		Targets []target
	}
}

// height returns how high a picture of the board is, in CSS pixels.
func (b board) height() int64 {
	const unit, heading = 34, 50 // of testdata/board.css
	end := int64(0)
	for _, panel := range b.Panels {
		end = max(end, panel.GridPos.Y+panel.GridPos.H)
	}
	return end*unit + heading
}

// target is a query of a panel: for now, or for all of the board's time.
type target struct {
	Expr    string
	Instant bool
}

// boards returns those of deploy/monitoring, and their texts, by the names of their files.
func boards(t *testing.T) (parsed map[string]board, texts map[string]json.RawMessage) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root(t), "deploy", "monitoring", "boards"))
	if err != nil {
		t.Fatal(err)
	}
	parsed, texts = map[string]board{}, map[string]json.RawMessage{}
	for _, entry := range entries {
		text := read(t, "deploy/monitoring/boards/"+entry.Name())
		var of board
		if err := json.Unmarshal([]byte(text), &of); err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(entry.Name(), ".json")
		parsed[name], texts[name] = of, json.RawMessage(text)
	}
	return parsed, texts
}

// chosen stands in expressions for what Grafana puts there, where everything is chosen.
var chosen = strings.NewReplacer("$__rate_interval", "1m", "$resource", ".*", "$instance", ".*")

// answersBoards sends the queries of the boards. What counts failures may have no answer.
func answersBoards(ctx context.Context, t *testing.T, server *server) {
	asked, answered := 0, 0
	parsed, _ := boards(t)
	for name, board := range parsed {
		for _, panel := range board.Panels {
			for _, target := range panel.Targets {
				asked++
				series := 0
				clustertest.AwaitSuccess(ctx, t, name+", "+panel.Title+": an answer", func() (err error) {
					series, err = server.query(ctx, chosen.Replace(target.Expr))
					if err == nil && series == 0 && panel.Type == "stat" {
						err = errors.New("there is none") // which one scrape that takes too long can do
					}
					return err
				})
				if series > 0 {
					answered++
				}
			}
		}
	}
	t.Logf("%d of %d queries have an answer", answered, asked)
	if answered < asked/3 {
		t.Errorf("only %d of %d queries have an answer", answered, asked)
	}
}

// runInference runs small pods on the second node, some of which end again. The others seem to use
// their GPUs.
func runInference(ctx context.Context, t *testing.T) {
	t.Helper()
	namespace := clustertest.Namespace(t, shared.Client)
	use := "processes:\n"
	for i, devices := range []int64{2, 1, 4, 1} {
		pod := clustertest.RunPod(ctx, t, shared.Client, clustertest.On("node-2",
			clustertest.IdlePod(namespace, fmt.Sprintf("model-%d", i+1), gpus(devices))))
		if i%2 == 1 {
			clustertest.DeletePod(ctx, t, shared.Client, pod)
			continue
		}
		use += processes(ctx, t, pod, 10+20*i)
	}
	if err := setInventory(filepath.Join(files, "node-2.yaml"), use); err != nil {
		t.Fatal(err)
	}
}

// processes returns the lines of an inventory by which a pod uses so many GiB of each of its GPUs.
func processes(ctx context.Context, t *testing.T, pod *corev1.Pod, gibibytes int) string {
	t.Helper()
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	pid, err := shared.Nodes[1].Run(ctx, "crictl", "inspect", "--output=go-template", "--template={{.info.pid}}", id)
	if err != nil {
		t.Fatal(err)
	}
	info, err := deviceinfo.PodAllocation(pod)
	if err != nil {
		t.Fatal(err)
	}
	lines := ""
	for _, device := range info.RunningContainers["main"].AllocateFrom {
		gpu := path.Base(path.Dir(string(device)))
		lines += fmt.Sprintf("- {gpu: %s, pid: %s, memory: %dGi}\n", gpu, strings.TrimSpace(pid), gibibytes)
	}
	return lines
}

// steps is how many values a picture has of each series, at most.
const steps = 100

// drawBoards takes pictures of the boards, with what the server knows since a time. The page draws
// them from their files with uPlot, as Grafana does, as no Grafana can be had from a registry that
// the tests use.
func drawBoards(ctx context.Context, t *testing.T, server *server, since time.Time) {
	t.Helper()
	chromium, err := browser.Build(ctx, root(t))
	if err != nil {
		t.Fatal(err)
	}
	from, to := since.Unix(), time.Now().Unix()
	step := (to-from)/steps + 1
	parsed, texts := boards(t)
	for name, board := range parsed {
		answers := map[int][]json.RawMessage{}
		for _, panel := range board.Panels {
			for _, target := range panel.Targets {
				query := "query?time=" + fmt.Sprint(to)
				if !target.Instant {
					query = fmt.Sprintf("query_range?start=%d&end=%d&step=%d", from, to, step)
				}
				var data struct{ Result json.RawMessage }
				err := server.get(ctx, query+"&query="+url.QueryEscape(chosen.Replace(target.Expr)), &data)
				if err != nil {
					t.Fatal(err)
				}
				answers[panel.ID] = append(answers[panel.ID], data.Result)
			}
		}
		state, err := json.Marshal(map[string]any{
			"board": texts[name], "from": from, "to": to, "step": step, "answers": answers,
		})
		if err != nil {
			t.Fatal(err)
		}
		pages := servePage(t, state)
		page := browser.Open(ctx, t, chromium, pages+"/board.html", 1400, board.height())
		page.Await("the board", "document.body.dataset.drawn")
		page.Picture(filepath.Join(root(t), "docs", "images", strings.Replace(name, "kubedevice-", "board-", 1)))
	}
}

// servePage serves the page that draws a board, with what it draws, and returns its address.
func servePage(t *testing.T, state []byte) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir("testdata")))
	for _, file := range []string{"uPlot.iife.min.js", "uPlot.min.css"} {
		installed := filepath.Join(root(t), "test", "browser", "node_modules", "uplot", "dist", file)
		if _, err := os.Stat(installed); err != nil {
			t.Fatalf("the pictures need \"npm ci\" in test/browser: %v", err)
		}
		mux.HandleFunc("/"+file, func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, installed) })
	}
	mux.HandleFunc("/state.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(state)
	})
	pages := httptest.NewServer(mux)
	t.Cleanup(pages.Close)
	return pages.URL
}
