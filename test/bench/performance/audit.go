package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

// write is a kind of request that changes something.
type write struct {
	resource string
	verb     string
}

// writesOf counts, from an audit log, the requests by which a user changed something in a namespace. Events are left
// out. Requests that the API server refused are counted too; refused is their number. The log is read from the offset
// on; end is where it ended.
func writesOf(log, user, namespace string, offset int64) (count map[write]int, refused int, end int64, err error) {
	file, err := os.Open(log)
	if err != nil {
		return nil, 0, 0, err
	}
	defer file.Close()
	if _, err := file.Seek(offset, 0); err != nil {
		return nil, 0, 0, err
	}
	count, end = map[write]int{}, offset
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil { // a line without an end is still being written
			return count, refused, end, nil
		}
		end += int64(len(line))
		var entry struct {
			Stage string `json:"stage"`
			Verb  string `json:"verb"`
			User  struct {
				Username string `json:"username"`
			} `json:"user"`
			Object struct {
				Resource    string `json:"resource"`
				Subresource string `json:"subresource"`
				Namespace   string `json:"namespace"`
			} `json:"objectRef"`
			Response struct {
				Code int `json:"code"`
			} `json:"responseStatus"`
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			return nil, 0, 0, fmt.Errorf("read %s: %w", log, err)
		}
		if entry.Stage != "ResponseComplete" || entry.User.Username != user || entry.Object.Namespace != namespace ||
			entry.Object.Resource == "events" {
			continue
		}
		resource := entry.Object.Resource
		if entry.Object.Subresource != "" {
			resource += "/" + entry.Object.Subresource
		}
		count[write{resource, entry.Verb}]++
		if entry.Response.Code >= 300 {
			refused++
		}
	}
}

func sum(count map[write]int) int {
	all := 0
	for _, n := range count {
		all += n
	}
	return all
}
