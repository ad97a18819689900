find("title").textContent = data.title;
find("summary").textContent = data.summary;
find("legend").innerHTML = data.legend;
panel(find("graph"), data.graphs);
