"""One room per question. Each takes subjects and a request and gives a Report; none holds a formula."""
