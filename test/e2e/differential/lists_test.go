// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"strings"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// listing registers a plugin with these devices, and returns which are offered.
func listing(want string, devices ...*pluginapi.Device) func(*side) string {
	return func(s *side) string {
		s.offers(devices...).serve().register()
		return s.offered(strings.Fields(want)...)
	}
}

// relisting is listing for a plugin that then sends further lists.
func relisting(want string, lists ...[]*pluginapi.Device) func(*side) string {
	return func(s *side) string {
		p := s.offers(dev("first")).serve().register()
		s.offered("first")
		for _, list := range lists {
			p.SetDevices(list...)
			time.Sleep(20 * time.Millisecond) // so that each list is one of its own
		}
		return s.offered(strings.Fields(want)...)
	}
}

func list(devices ...*pluginapi.Device) []*pluginapi.Device { return devices }

// health is a device whose health is none of the values of the API.
func health(id, text string) *pluginapi.Device {
	d := dev(id)
	d.Health = text
	return d
}

// lists are the lists that plugins send.
func lists() []behaviour {
	var thousand []*pluginapi.Device
	var ids []string
	for i := range 1000 {
		ids = append(ids, fmt.Sprintf("device-%04d", i))
		thousand = append(thousand, dev(ids[i]))
	}
	var flaps [][]*pluginapi.Device
	for range 30 {
		flaps = append(flaps, list(unhealthy("a"), dev("b")), list(dev("a"), dev("b")))
	}
	long, longer := strings.Repeat("x", 300), strings.Repeat("x", 1200)
	return []behaviour{
		{name: "lists devices with and without NUMA nodes", row: "numa", want: "a b@0 c@0 c@1",
			play: listing("a b@0 c@0 c@1", dev("a"), dev("b", 0), dev("c", 1, 0))},
		{name: "lists a device on NUMA node -1", row: "numaminus", want: "a@-1", here: "a",
			reason: "A negative NUMA node is none", play: func(s *side) string {
				s.offers(dev("a", -1)).serve().register()
				return s.offered(map[string]string{"kubelet": "a@-1", "kubecri": "a"}[s.name])
			}},
		{name: "lists an unhealthy device", row: "unhealthy", want: "b", play: listing("b", unhealthy("a"), dev("b"))},
		{name: "reports health by other values", row: "values", want: "d",
			play: listing("d", health("a", "healthy"), health("b", ""), health("c", "OK"), dev("d"))},
		{name: "lists no devices", row: "none", want: "", play: relisting("", list())},
		{name: "lists other devices", row: "others", want: "b c", play: relisting("b c", list(dev("b"), dev("c")))},
		{name: "lists a device no more", row: "fewer", want: "b",
			play: relisting("b", list(dev("a"), dev("b")), list(dev("b")))},
		{name: "lists a device twice", row: "same", want: "a b", play: listing("a b", dev("a"), dev("b"), dev("a"))},
		{name: "lists a device as healthy and as unhealthy", row: "both", want: "a b", here: "b",
			reason: "It is unhealthy if one of them is", play: func(s *side) string {
				s.offers(dev("a"), unhealthy("a"), dev("b")).serve().register()
				return s.offered(map[string][]string{"kubelet": {"a", "b"}, "kubecri": {"b"}}[s.name]...)
			}},
		{name: "lists a device without an ID", row: "noid", want: " a", here: "a",
			reason: "A device that cannot have a name on the node is left out", play: func(s *side) string {
				s.offers(dev("a"), dev("")).serve().register()
				return s.offered(map[string][]string{"kubelet": {"", "a"}, "kubecri": {"a"}}[s.name]...)
			}},
		{name: "lists a device with a long ID", row: "long", want: long, play: listing(long, dev(long))},
		{name: "lists a device with an ID that is too long for a name", row: "longer", want: "a " + longer, here: "a",
			reason: "A device that cannot have a name on the node is left out", play: func(s *side) string {
				s.offers(dev("a"), dev(longer)).serve().register()
				return s.offered(map[string][]string{"kubelet": {"a", longer}, "kubecri": {"a"}}[s.name]...)
			}},
		{name: "lists IDs with odd characters", row: "odd", want: `%2F ../x 0000:3b:00.0 a/b a=b größe ☃`,
			play: listing(`%2F ../x 0000:3b:00.0 a/b a=b größe ☃`, dev("a/b"), dev("a=b"), dev("%2F"), dev("größe"),
				dev("☃"), dev("../x"), dev("0000:3b:00.0"))},
		{name: "lists 1,000 devices", row: "thousand", want: strings.Join(ids, " "),
			play: listing(strings.Join(ids, " "), thousand...)},
		{name: "lists a device as healthy and unhealthy again and again", row: "flaps", want: "a b",
			play: relisting("a b", flaps...)},
		{name: "changes the NUMA node of a device", row: "moves", want: "a@1",
			play: relisting("a@1", list(dev("a", 0)), list(dev("a", 1)))},
		{name: "ends, and comes back", row: "ends", want: "a, then , then b", play: func(s *side) string {
			p := s.offers(dev("a")).serve().register()
			before := s.offered("a")
			p.Stop()
			meanwhile := s.offered()
			s.offers(dev("b")).serve().register()
			return before + ", then " + meanwhile + ", then " + s.offered("b")
		}},
	}
}

// successions are of two plugins of one resource that live at the same time. The older lists old,
// the newer new.
func successions() []behaviour {
	begin := func(s *side, socket string) (older, newer *plugin) {
		older = s.offers(dev("old")).serve().register()
		s.offered("old")
		newer = s.at(strings.Replace(older.socket, ".sock", socket, 1), dev("new")).serve()
		s.send(newer.request())
		return older, newer
	}
	return []behaviour{
		{name: "a newer plugin registers at another socket", row: "newer", want: "new", play: func(s *side) string {
			begin(s, "-new.sock")
			return s.offered("new")
		}},
		{name: "a newer plugin registers at the same path", row: "newersame", want: "old", here: "new",
			reason: "The kubelet refuses the newer one at the path of the older",
			play: func(s *side) string {
				begin(s, ".sock")
				return s.stays("new")
			}},
		{name: "an older plugin leaves", row: "oldleaves", want: "new", play: func(s *side) string {
			older, _ := begin(s, "-new.sock")
			s.offered("new")
			older.Stop()
			return s.stays("new")
		}},
		{name: "an older plugin sends another list", row: "oldlists", want: "late", here: "new",
			reason: "Late lists of the older count for nothing",
			play: func(s *side) string {
				older, _ := begin(s, "-new.sock")
				s.offered("new")
				older.SetDevices(dev("late"))
				return s.stays("late")
			}},
		{name: "a newer plugin leaves first", row: "newleaves", want: "new", here: "old",
			reason: "its last list counts again",
			play: func(s *side) string {
				_, newer := begin(s, "-new.sock")
				s.offered("new")
				newer.Stop()
				return s.stays("old")
			}},
	}
}
